"""Second-order workloads: layout, refusals, and the matrices that are filled from queries."""

import msgspec
import numpy as np
import pandas as pd
import pytest

from dpcausal_bayes.columns import Arm, Bounded, Categories, Levels
from dpcausal_bayes.gram_workloads import GramWorkload, Workload
from dpcausal_bayes.moments import LATTICE, table_moments
from dpcausal_bayes.release_files import from_json, to_json
from dpcausal_bayes.schema import Schema
from dpcausal_bayes.workloads import CausalWorkload
from gram_examples import COVARIATES, PANDAS, SCHEMA, WORKLOADS


def vectors_of(workload, rows):
    """(1, phi, y) of every row of a table, by hand."""
    table = pd.DataFrame(rows)
    scaled = {
        "wage": np.clip((table["wage"] - 1) / 3, -1, 1),
        "age": np.clip((table["age"] - 36) / 19, -1, 1),
        "sex=m": np.where(table["sex"] == "m", 1, -1),
        "town=b": np.where(table["town"] == "b", 1, -1),
        "town=else": np.where(table["town"] == "z", 1, -1),
        "size=[1, 2)": np.where(table["size"] == 1, 1, -1),
        "size=[2, 4]": np.where(table["size"] >= 2, 1, -1),
        "y": np.clip((table["y"] - 3) / 4, -1, 1),
        "won": 2 * table["won"] - 1,
    }
    numeric = [name for name in workload.columns if name in ("wage", "age")]
    if workload.radius is not None:
        length = np.sqrt(sum(scaled[name] ** 2 for name in numeric))
        for name in numeric:
            scaled[name] = scaled[name] * np.minimum(1, workload.radius / length)
    return np.column_stack([np.ones(len(table)), *(scaled[name] for name in workload.columns)])


@pytest.mark.parametrize("name", WORKLOADS)
def test_matrices_are_second_moments_of_every_column(name):
    workload = WORKLOADS[name]
    v = vectors_of(workload, PANDAS)
    arm = PANDAS["t"].to_numpy()
    expected = np.stack([v[arm == a].T @ v[arm == a] for a in (0, 1)])
    exact = table_moments(PANDAS, workload)
    assert exact.dtype == np.int64
    # three roundings of a record to the lattice
    np.testing.assert_allclose(
        workload.gram(exact / LATTICE), expected, atol=3 * len(PANDAS) / LATTICE
    )


def test_queries_are_what_nothing_else_tells():
    half = [query for query in WORKLOADS["binary"].queries if query.endswith("|treated")]
    assert half == [
        f"{product}|treated"
        for product in (
            "1",
            *("town=b", "town=else", "wage", "size=[1, 2)", "size=[2, 4]", "won"),
            *("town=b*wage", "town=b*size=[1, 2)", "town=b*size=[2, 4]", "town=b*won"),
            *("town=else*wage", "town=else*size=[1, 2)", "town=else*size=[2, 4]", "town=else*won"),
            *("wage*wage", "wage*size=[1, 2)", "wage*size=[2, 4]", "wage*won"),
            *("size=[1, 2)*won", "size=[2, 4]*won"),
        )
    ]
    assert WORKLOADS["none"].queries == (
        *("1|control", "y|control", "y*y|control"),
        *("1|treated", "y|treated", "y*y|treated"),
    )


@pytest.mark.parametrize("workload", [*WORKLOADS.values(), CausalWorkload(SCHEMA, strata=["sex"])])
def test_workloads_travel_as_json(workload):
    assert from_json(to_json(workload), Workload) == workload


def test_defaults_are_all_covariates_in_the_cube():
    workload = GramWorkload(SCHEMA)
    assert workload.covariates == tuple(covariate.column for covariate in COVARIATES)
    assert workload.radius == np.sqrt(2)
    assert not workload.shrinks
    assert WORKLOADS["ball"].shrinks
    assert WORKLOADS["levels"].radius is None


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"schema": "y"}, TypeError, "GramWorkload.schema is a str"),
        ({"covariates": "age"}, TypeError, "GramWorkload.covariates is a str"),
        ({"covariates": ["age", 3]}, TypeError, r"GramWorkload.covariates\[1\] is a int"),
        ({"covariates": ["height"]}, ValueError, r"covariates\[0\] is 'height', which is no"),
        ({"covariates": ["age", "age"]}, ValueError, "names 'age' twice"),
        (
            {"radius": 0.4},
            ValueError,
            "radius is 0.4: for 2 numeric .* must be from 0.5",
        ),
        ({"radius": 1.5}, ValueError, "to 1.41421, the cube's corner"),
        ({"radius": "big"}, TypeError, "GramWorkload.radius"),
        ({"covariates": ["sex"], "radius": 1.0}, ValueError, "but no covariate is numeric"),
        (
            {"schema": msgspec.structs.replace(SCHEMA, outcome=Levels("y", [0, 1, 2]))},
            ValueError,
            "GramWorkload.schema has an outcome of 3 levels",
        ),
        (
            {"schema": msgspec.structs.replace(SCHEMA, covariates=[Categories("one", ["x"])])},
            ValueError,
            "'one', has one level",
        ),
        (
            {
                "schema": Schema(
                    arm=Arm("t", control=0, treated=1),
                    outcome=Bounded("y", 0, 1),
                    covariates=[Bounded("a", 0, 1), Bounded("b", 0, 1), Bounded("a*b", 0, 1)],
                )
            },
            ValueError,
            "labels read alike",
        ),
    ],
)
def test_refusals_name_the_field(change, error, says):
    with pytest.raises(error, match=says):
        GramWorkload(**{"schema": SCHEMA, **change})


def test_numbers_make_no_strata():
    with pytest.raises(TypeError, match=r"names 'age', a number without levels: .*Binned\('age'"):
        CausalWorkload(SCHEMA, strata=["age"])


def test_vectors_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"vector has shape \(3,\)"):
        WORKLOADS["cube"].gram([1.0, 2.0, 3.0])
