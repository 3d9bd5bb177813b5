r"""A trial on YouTube's largest communities, with outcomes simulated from what is known of them.

Units are the memberships of the 50 largest communities (com-YouTube of SNAP; Mislove et al. 2007;
Yang and Leskovec 2012), clusters are the communities. A user of several communities is several
units. Known of everybody is how many of the 5,000 largest communities the user is in. The
friendship graph is not there, but for an arbitrary part of it: the number of friends, which an
outcome could also depend on, is known of less than a quarter of the users and is not used.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from real_data_sets import DATA
from scipy import stats

from dpcausal_bayes.columns import Arm, Categories, Levels
from dpcausal_bayes.populations.labels import Population
from dpcausal_bayes.schema import Schema

YOUTUBE = DATA / "youtube"
VALUES = np.linspace(-3.5, 3.5, 8)  # public, chosen as about three standard deviations
EFFECT = 0.5
OWN, SHARED = 0.5, 1.0  # weights of a member's activity and of its community's mean activity


def activity(members: pd.DataFrame, everywhere: pd.DataFrame) -> pd.Series:
    """Return the log number of communities that each member's user is in, mean 0 and variance 1.

    Parameters
    ----------
    members, everywhere : pandas.DataFrame
        Memberships, with a column ``user``: of the trial, and of all communities.
    """
    joined = everywhere.groupby("user").size()
    found = np.log(members["user"].map(joined))
    return (found - found.mean()) / found.std(ddof=0)


@cache
def youtube_population() -> Population:
    r"""Return the trial: 22,179 units, 50 clusters, 8 outcome levels.

    With a the activity of a member (see `activity`) and b its mean in the community, scaled to
    variance 1 over units,

    .. math:: Y(t) \sim N(0.5\, a + b + 0.5\,(t - 1/2),\ 1),

    moved to the nearest of 8 values from -3.5 to 3.5. A community's shares are the average over its
    members. Half of each community is treated.
    """
    members = pd.read_csv(YOUTUBE / "top50_membership.csv")
    own = activity(members, pd.read_csv(YOUTUBE / "top5000_membership.csv"))
    shared = own.groupby(members["community"]).transform("mean")
    centre = OWN * own + SHARED * shared / shared.std(ddof=0)
    edges = np.concatenate([[-np.inf], (VALUES[1:] + VALUES[:-1]) / 2, [np.inf]])
    mean = centre.to_numpy()[:, None] + EFFECT * np.array([-0.5, 0.5])
    of_unit = np.diff(stats.norm.cdf(edges - mean[..., None]), axis=-1)
    communities = np.sort(members["community"].unique())
    place = np.searchsorted(communities, members["community"])
    shares = np.stack([of_unit[place == c].mean(axis=0) for c in range(len(communities))])
    size = np.bincount(place)
    schema = Schema(
        arm=Arm("treated", control=0, treated=1),
        outcome=Levels("y", VALUES.tolist()),
        cluster=Categories("community", tuple(f"community {c}" for c in communities)),
    )
    halves = np.stack([size - size // 2, size // 2], axis=1)
    return Population(schema=schema, shares=shares, cell_size=halves)
