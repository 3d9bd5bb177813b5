"""The ledger: refuses, remembers, and is not fooled."""

import json
import math
import subprocess
import sys
import threading
import time

import pytest

from dpcausal_bayes.accounting import (
    REPLACE_ONE_LABEL,
    REPLACE_ONE_RECORD,
    PrivacyLoss,
    epsilon_from_rho,
)
from dpcausal_bayes.columns import Arm, Levels
from dpcausal_bayes.custodian import Ledger, LedgerError
from dpcausal_bayes.custodian import ledger as ledger_module
from dpcausal_bayes.custodian.composition import compose_losses
from dpcausal_bayes.laws import Gaussian
from dpcausal_bayes.mechanisms import ClusterDP
from dpcausal_bayes.schema import Schema


def pure(epsilon, rho=None):
    rho = epsilon**2 / 2 if rho is None else rho
    return PrivacyLoss(pure_epsilon=epsilon, rho=rho, epsilon=epsilon, delta=0.0)


def impure(epsilon, delta, rho):
    return PrivacyLoss(pure_epsilon=None, rho=rho, epsilon=epsilon, delta=delta)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


def test_charges_add_up_and_the_overspend_is_refused():
    ledger = Ledger(epsilon=2.0)
    assert ledger.spent == (0, 0)
    ledger.charge("one", pure(1.0))
    ledger.charge("two", pure(0.75))
    assert ledger.spent == (1.75, 0)
    assert ledger.remaining == (0.25, 0)
    with pytest.raises(LedgerError) as refusal:
        ledger.charge("three", pure(0.5))
    for part in ("'three'", "0.5-DP", "total to (2.25, 0)", "so far (1.75, 0)", "budget (2, 0)"):
        assert part in str(refusal.value)
    assert [entry.what for entry in ledger.entries] == ["one", "two"]
    ledger.charge("four", pure(0.25))
    assert ledger.remaining == (0, 0)


def test_two_halves_of_a_budget_are_not_more_than_the_whole():
    schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", list(range(7))))
    for parts in (2, 3, 7, 10):
        ledger = Ledger(epsilon=0.7)
        for _ in range(parts):
            ledger.charge("part", ClusterDP.calibrated(schema, epsilon=0.7 / parts).loss())
        with pytest.raises(LedgerError):
            ledger.charge("crumb", pure(1e-6))


def test_decimals_that_do_not_add_up_in_binary():
    ledger = Ledger(epsilon=0.3)
    for _ in range(3):
        ledger.charge("a third", pure(0.1))
    assert ledger.spent[0] > 0.3  # by the last digit, which is forgiven
    with pytest.raises(LedgerError):
        ledger.charge("crumb", pure(1e-6))


def test_many_small_releases_cost_less_than_their_sum():
    losses = [pure(0.1)] * 400
    assert compose_losses(losses, 0.0) == (pytest.approx(40.0), 0.0)
    epsilon, delta = compose_losses(losses, 1e-6)
    assert (epsilon, delta) == (pytest.approx(epsilon_from_rho(400 * 0.005, 1e-6)), 1e-6)
    assert epsilon < 13


def test_a_single_release_costs_what_it_states():
    schema = Schema(arm=Arm("t", control=0, treated=1), outcome=Levels("y", [0, 1, 2]))
    loss = ClusterDP.calibrated(schema, epsilon=1.0, noise=Gaussian, delta=1e-6).loss()
    assert epsilon_from_rho(loss.rho, 1e-6) > 1.0  # so that the conversion alone would refuse it
    ledger = Ledger(epsilon=1.0, delta=1e-6)
    ledger.charge("gaussian", loss)
    assert ledger.spent == (pytest.approx(1.0), pytest.approx(1e-6))


def test_deltas_add_up():
    losses = [impure(0.5, 5e-7, 10.0), impure(0.5, 5e-7, 10.0)]
    assert compose_losses(losses, 1e-6) == (1.0, pytest.approx(1e-6))
    assert compose_losses(losses, 0.9e-6)[0] > 1.0  # only zCDP is left
    assert compose_losses(losses, 0.0)[0] == math.inf
    assert compose_losses([], 1e-6) == (0.0, 0.0)
    assert compose_losses([pure(1.0), impure(0.5, 1e-6, 10.0)], 1e-6) == (1.5, 1e-6)


def test_gaussian_noise_needs_a_delta_in_the_budget():
    with pytest.raises(LedgerError, match="Give the ledger a delta"):
        Ledger(epsilon=5.0).charge("gaussian", impure(1.0, 1e-6, 0.1))


@pytest.mark.parametrize(
    ("budget", "error", "says"),
    [
        ({"epsilon": 0}, ValueError, "epsilon is 0"),
        ({"epsilon": -1}, ValueError, "epsilon is -1"),
        ({"epsilon": float("nan")}, ValueError, "epsilon is nan"),
        ({"epsilon": float("inf")}, ValueError, "epsilon is inf"),
        ({"epsilon": "2"}, TypeError, "epsilon is '2'"),
        ({"epsilon": 1, "delta": 1}, ValueError, "delta is 1"),
        ({"epsilon": 1, "delta": -1e-9}, ValueError, "delta is -1e-09"),
        ({"epsilon": 1, "delta": None}, TypeError, "delta is None"),
    ],
)
def test_bad_budgets_are_named(budget, error, says):
    with pytest.raises(error, match=f"Ledger.{says}"):
        Ledger(**budget)


@pytest.mark.parametrize("epsilon", [1e-3, 1e4])
def test_extreme_budgets_work(epsilon):
    ledger = Ledger(epsilon=epsilon, delta=1e-6)
    ledger.charge("all of it", pure(epsilon))
    with pytest.raises(LedgerError):
        ledger.charge("more", pure(epsilon))


def test_only_a_loss_can_be_charged():
    with pytest.raises(TypeError, match="pass a PrivacyLoss"):
        Ledger(epsilon=1.0).charge("one", 0.5)


def test_restart_remembers(path):
    Ledger(epsilon=2.0, delta=1e-6, path=path).charge("one", pure(1.5))
    again = Ledger(epsilon=2.0, delta=1e-6, path=str(path))
    assert again.spent == (1.5, 0)
    assert again.entries[0].what == "one"
    with pytest.raises(LedgerError, match="refused"):
        again.charge("two", pure(1.0))
    assert repr(again) == "Ledger(budget (2, 1e-06), spent (1.5, 0), 1 entry, in ledger.json)"


def test_two_objects_on_one_file_see_each_other(path):
    one, two = (Ledger(epsilon=2.0, path=path) for _ in range(2))
    one.charge("one", pure(1.5))
    assert two.spent == (1.5, 0)
    with pytest.raises(LedgerError, match="refused"):
        two.charge("two", pure(1.0))


def test_a_refusal_leaves_the_file_as_it_was(path):
    ledger = Ledger(epsilon=1.0, path=path)
    ledger.charge("one", pure(0.5))
    before = path.read_bytes()
    with pytest.raises(LedgerError):
        ledger.charge("two", pure(0.75))
    assert path.read_bytes() == before


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 0.0), (2.0, 1e-6)])
def test_a_budget_is_set_once(path, epsilon, delta):
    Ledger(epsilon=2.0, path=path)
    with pytest.raises(LedgerError, match=r"holds the budget \(2, 0\)"):
        Ledger(epsilon=epsilon, delta=delta, path=path)


def damage_digit(text):
    return text.replace('"epsilon": 0.5', '"epsilon": 0.1')


def drop_entries(text):
    document = json.loads(text)
    document["entries"] = []
    return json.dumps(document)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"format_version": 1', '"format_version": 2'),
        lambda text: text.replace("dpcausal_bayes/ledger", "dpcausal_bayes/label-release"),
        lambda text: text.replace('"epsilon": 0.5', '"epsilon": -0.5'),
        lambda text: text.replace('"what"', '"secret"'),
        damage_digit,
        drop_entries,
    ],
)
def test_a_damaged_file_stops_everything(path, damage):
    ledger = Ledger(epsilon=1.0, path=path)
    ledger.charge("one", pure(0.5))
    damaged = damage(path.read_text())
    assert damaged != path.read_text()
    path.write_text(damaged)
    with pytest.raises(LedgerError, match="not an intact ledger"):
        Ledger(epsilon=1.0, path=path)
    with pytest.raises(LedgerError, match="not an intact ledger"):
        ledger.charge("two", pure(0.1))
    assert path.read_text() == damaged


def test_bytes_that_are_no_text(path):
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LedgerError, match="not an intact ledger"):
        Ledger(epsilon=1.0, path=path)


def test_a_lost_file_is_not_a_fresh_start(path):
    ledger = Ledger(epsilon=1.0, path=path)
    ledger.charge("one", pure(0.5))
    path.unlink()
    with pytest.raises(LedgerError, match="is gone"):
        ledger.charge("two", pure(0.1))
    assert not path.exists()


def test_an_older_copy_of_the_file_is_noticed(path):
    ledger = Ledger(epsilon=1.0, path=path)
    before = path.read_bytes()
    ledger.charge("one", pure(0.5))
    path.write_bytes(before)
    with pytest.raises(LedgerError, match="lost or changed entries"):
        ledger.charge("two", pure(0.6))


# A pause between reading and writing the ledger, so that without a lock somebody would step in.
SPENDER = """
import sys, time
from dpcausal_bayes.accounting import PrivacyLoss
from dpcausal_bayes.custodian import Ledger, LedgerError, ledger as module
compose = module.compose_losses
module.compose_losses = lambda *given: (time.sleep(0.002), compose(*given))[1]
loss = PrivacyLoss(pure_epsilon=0.125, rho=0.0078125, epsilon=0.125, delta=0.0)
ledger, made = Ledger(epsilon=5.0, path=sys.argv[1]), 0
print("ready", flush=True)
sys.stdin.readline()
for i in range(30):
    try:
        ledger.charge(f"{sys.argv[2]} {i}", loss)
        made += 1
    except LedgerError:
        pass
print(made)
"""


def test_processes_cannot_overspend_together(path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    made = [int(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sum(made) == 40
    ledger = Ledger(epsilon=5.0, path=path)
    assert ledger.spent == (5.0, 0)
    assert len({entry.what for entry in ledger.entries}) == 40


@pytest.mark.parametrize("where", ["memory", "file"])
def test_threads_cannot_overspend_together(path, where, monkeypatch):
    def slowly(*given):
        time.sleep(0.002)
        return compose_losses(*given)

    monkeypatch.setattr(ledger_module, "compose_losses", slowly)
    ledger = Ledger(epsilon=5.0, path=path if where == "file" else None)
    made = []

    def spend():
        for _ in range(20):
            try:
                ledger.charge("x", pure(0.125))
                made.append(1)
            except LedgerError:
                pass

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(made) == 40
    assert len(ledger.entries) == 40


def about(adjacency):
    return PrivacyLoss(pure_epsilon=0.25, rho=0.1, epsilon=0.25, delta=0.0, adjacency=adjacency)


LABEL, RECORD = about(REPLACE_ONE_LABEL), about(REPLACE_ONE_RECORD)


@pytest.mark.parametrize(
    ("losses", "total"),
    [
        ([], None),
        ([LABEL, LABEL], REPLACE_ONE_LABEL),
        ([RECORD, RECORD], REPLACE_ONE_RECORD),
        ([LABEL, RECORD], REPLACE_ONE_LABEL),
        ([LABEL, RECORD, LABEL], REPLACE_ONE_LABEL),
    ],
)
def test_a_total_protects_what_all_its_entries_protect(losses, total, path):
    ledger = Ledger(epsilon=1.0, path=path)
    for loss in losses:
        ledger.charge("release", loss)
    assert ledger.adjacency == total
    assert ledger.spent == (0.25 * len(losses), 0)
    assert Ledger(epsilon=1.0, path=path).adjacency == total


@pytest.mark.parametrize("weaker", [LABEL, about("add one record")])
def test_a_budget_for_records_does_not_become_one_for_less(weaker):
    ledger = Ledger(epsilon=1.0)
    ledger.charge("moments", RECORD)
    with pytest.raises(LedgerError) as refusal:
        ledger.charge("labels", weaker)
    for part in ("'labels' is refused", weaker.adjacency, RECORD.adjacency, "ledger of its own"):
        assert part in str(refusal.value)
    assert len(ledger.entries) == 1
    ledger.charge("more moments", RECORD)


def test_several_charges_are_checked_together_and_none_is_recorded():
    ledger = Ledger(epsilon=2.0)
    ledger.check("three steps", [pure(1.0), pure(0.5), pure(0.5)])
    with pytest.raises(LedgerError, match=r"'three steps' is refused.*total to \(2.1, 0\)"):
        ledger.check("three steps", [pure(1.0), pure(0.5), pure(0.6)])
    assert ledger.entries == ()
