"""First-order workloads of several groups, and their laws by enumeration of every record."""

import itertools

import numpy as np
import xarray as xr

from dpcausal_bayes.columns import Arm, Bounded, Categories, Levels
from dpcausal_bayes.facts import public_facts
from dpcausal_bayes.manifest import write_manifest
from dpcausal_bayes.models.maxent_laws import maxent_form, maxent_law
from dpcausal_bayes.models.maxent_records import maxent_records
from dpcausal_bayes.models.priors import MaxentPriors
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload


def workload_of(sizes, *, binary=False):
    """Covariates x0, x1, ... of given numbers of levels, each a group."""
    outcome = Levels("y", [0, 1]) if binary else Bounded("y", -1, 1)
    covariates = [Categories(f"x{j}", list(range(size))) for j, size in enumerate(sizes)]
    schema = Schema(arm=Arm("t", control=0, treated=1), outcome=outcome, covariates=covariates)
    return CausalWorkload(schema, groups=[[field.column] for field in covariates])


def layout_of(workload, points=9):
    grid = np.array([-1.0, 1.0]) if workload.binary else np.linspace(-1, 1, points)
    form = maxent_form(workload, MaxentPriors(), grid)
    return form, maxent_records(workload, form)


LAYOUTS = {
    "bounded": layout_of(workload_of([2, 3, 4])),
    "binary": layout_of(workload_of([2, 3, 4], binary=True)),
    "one group": layout_of(workload_of([5])),
    "a lone level": layout_of(workload_of([1, 3])),
}


def coefficients(form, n=None, seed=0, width=0.7):
    shape = (len(form.centre),) if n is None else (n, len(form.centre))
    return form.centre + width * form.scale * np.random.default_rng(seed).standard_normal(shape)


def tree_of(model, release, form, c):
    """Return a tree whose posterior and prior are given coefficients (chain, draw, K)."""
    dims = ("chain", "draw", "term")
    draws = xr.Dataset({"coefficient": (dims, c)}, coords={"term": list(form.labels)})
    facts = public_facts(release, model)
    tree = xr.DataTree.from_dict({"posterior": draws, "prior": draws, "constant_data": facts})
    tree.attrs["manifest"] = write_manifest(model, release, 1)
    return tree


class Enumerated:
    """Every record (t, x, y) of a law, and what it contributes, one by one."""

    def __init__(self, form, c):
        self.form, law = form, maxent_law(form, c)
        x = list(itertools.product(*(range(size) for size in form.sizes)))
        records = list(itertools.product(range(2), x, range(len(form.grid))))
        self.arm = np.array([t for t, _, _ in records])
        self.x = np.array([x for _, x, _ in records])
        self.point = np.array([y for _, _, y in records])
        self.y = form.grid[self.point]
        each = [law.level[self.arm, g, self.x[:, g], self.point] for g in range(len(form.sizes))]
        self.p = law.cell[self.arm, self.point] * np.prod(each, axis=0)
        self.tilt = sum(law.tilt[self.arm, g, self.x[:, g]] for g in range(len(form.sizes)))

    def contributions(self):
        """One row a record, in the order of the workload's queries."""
        columns = []
        for g, size in enumerate(self.form.sizes):
            for t in range(2):
                for level in range(size):
                    own = (self.arm == t) & (self.x[:, g] == level)
                    second = [self.y == -1, self.y == 1] if self.form.binary else [1, self.y]
                    columns += [own * part for part in second]
        if not self.form.binary:
            columns += [(self.arm == t) * (self.y**2 - 0.5) for t in range(2)]
        return np.array(columns, dtype=float).T

    def means(self):
        """Mean outcome (assigned, arm, stratum) and weight (assigned, stratum)."""
        cells = self.p.reshape(2, -1, len(self.form.grid))
        outcome = (cells @ self.form.grid) / cells.sum(-1)  # E[y | t, x]
        share, x = (
            cells.sum(-1),
            self.x.reshape(2, -1, len(self.form.grid), self.x.shape[1])[0, :, 0],
        )
        strata = [np.ones(len(x), bool)]
        strata += [x[:, g] == k for g, size in enumerate(self.form.sizes) for k in range(size)]
        weight = np.array([[share[a, s].sum() for s in strata] for a in range(2)])
        total = [
            [[share[a, s] @ outcome[t, s] for s in strata] for t in range(2)] for a in range(2)
        ]
        return np.array(total) / weight[:, None], weight
