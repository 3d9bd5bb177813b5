"""Every example in a docstring runs.

The modules are imported by name, as a user does: collected by path, those in models/ would be
loaded twice.
"""

import doctest
import importlib

import pytest

from layout import module_files

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", module_files())
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # examples may save files
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report: list[str] = []
    for example in doctest.DocTestFinder().find(importlib.import_module(name)):
        runner.run(example, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)
