"""What any test may use."""

import os
import sys

import pytest

from layout import ROOT

os.environ.setdefault("MPLBACKEND", "Agg")  # no test opens a window


@pytest.fixture(autouse=True)
def _close_figures():
    """Close the figures that a test left open: matplotlib warns at twenty."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def data_dir():
    """Folder of public benchmark data; without it the tests that want it are skipped."""
    folder = os.environ.get("DPCAUSAL_DATA", ROOT / ".." / "shared" / "data")
    folder = ROOT.joinpath(folder).resolve()
    if not folder.is_dir():
        pytest.skip(f"no benchmark data: {folder} is not a folder (set DPCAUSAL_DATA to one)")
    return folder
