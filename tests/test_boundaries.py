"""The walls inside the package, and the house rules that a program can check."""

import ast
import importlib
import inspect
import re
import subprocess
import sys

import pytest

from layout import PACKAGE, ROOT, module_files, project_files

MODULES = module_files()
CUSTODIAN = f"{PACKAGE}.custodian"

# What both halves stand on: these, in this order of import, and whatever they import.
PILLARS = [
    f"{PACKAGE}.{name}" for name in ("schema", "mechanisms", "releases", "privatise", "moments")
]
# What only one half needs, and so nothing of the foundation.
ONE_SIDED = {"arviz", "matplotlib", "narwhals", "nutpie", "opendp", "pymc", "pytensor", "xarray"}

MOST_LINES = 350
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:root|home|Users|work|tmp|opt|mnt|srv)/|\b[A-Z]:\\\\?Users"
)
REGISTRY = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.org|deb\.debian\.org|index[-_]url", re.I)


def imported(source: str) -> set[str]:
    """Dotted names that a module imports anywhere, functions included; relative ones kept bare."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def modules_of(names: set[str]) -> set[str]:
    """Return the package's own modules among dotted names: the longest prefix of each name."""
    own = set()
    for name in names:
        parts = name.split(".")
        prefixes = [".".join(parts[:k]) for k in range(len(parts), 0, -1)]
        own |= set([prefix for prefix in prefixes if prefix in MODULES][:1])
    return own


def is_under(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


IMPORTS = {name: imported(path.read_text("utf-8")) for name, path in MODULES.items()}
ANALYST = [name for name in MODULES if not is_under(name, CUSTODIAN)]


def reached_from(*modules: str) -> set[str]:
    """Return the package's modules that some modules import, directly or not."""
    reached: set[str] = set()
    ahead = set(modules)
    while ahead:
        found = set().union(*(modules_of(IMPORTS[name]) for name in ahead if name in IMPORTS))
        ahead = found - reached - {PACKAGE}  # of the top there is only the version to be had
        reached |= ahead
    return reached


FOUNDATION = (reached_from(*PILLARS) | set(PILLARS)) & set(MODULES)


def test_the_reader_of_imports_sees_every_form():
    source = (
        "import dpcausal_bayes.custodian as c\n"
        "def f():\n"
        "    from dpcausal_bayes import schema, __version__\n"
        "    from dpcausal_bayes.custodian import Ledger\n"
        "    from .models import x\n"
    )
    names = imported(source)
    assert ".models.x" in names
    assert modules_of(names) == {PACKAGE, CUSTODIAN, f"{PACKAGE}.schema"} & set(MODULES)


@pytest.mark.parametrize("module", ANALYST)
def test_analyst_never_imports_the_custodian(module):
    assert not [name for name in modules_of(IMPORTS[module]) if is_under(name, CUSTODIAN)]


def test_analyst_runs_where_the_custodian_is_missing():
    # Seen from outside: this also catches an import by string.
    program = (
        "import importlib, sys\n"
        f"sys.modules['{CUSTODIAN}'] = None\n"
        f"for name in {ANALYST!r}: importlib.import_module(name)\n"
        "assert 'opendp' not in sys.modules, 'the analyst needs opendp'\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("module", [name for name in MODULES if is_under(name, CUSTODIAN)])
def test_custodian_imports_only_the_foundation(module):
    own = modules_of(IMPORTS[module]) - FOUNDATION - {PACKAGE}
    assert not [name for name in own if not is_under(name, CUSTODIAN)]


@pytest.mark.parametrize("pillar", PILLARS)
def test_foundation_is_built_in_order(pillar):
    assert not reached_from(pillar) & set(PILLARS[PILLARS.index(pillar) :])


@pytest.mark.parametrize("module", sorted(FOUNDATION))
def test_foundation_needs_neither_half(module):
    assert module not in reached_from(module), "imports run in a circle"
    assert not {name.split(".")[0] for name in IMPORTS[module]} & ONE_SIDED


@pytest.mark.parametrize("module", MODULES)
def test_inside_the_package_names_come_from_where_they_are_defined(module):
    # `from dpcausal_bayes import Schema` in a module would run in circles; the version is a fact.
    taken = {name for name in IMPORTS[module] if modules_of({name}) == {PACKAGE}}
    assert taken <= {f"{PACKAGE}.__version__"}


def test_nobody_loads_a_second_copy_of_models():
    for path in project_files():
        if path.suffix == ".py":
            names = imported(path.read_text("utf-8"))
            assert not [name for name in names if is_under(name, "models")], path


def test_files_are_about_one_thing():
    lines = {
        str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines())
        for path in project_files()
        if path.suffix == ".py"
    }
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}


ANALYST_PACKAGES = [f"{PACKAGE}.{name}" for name in ("direct", "models", "populations")]


@pytest.mark.parametrize("package", [PACKAGE, CUSTODIAN, *ANALYST_PACKAGES])
def test_public_names_exist_and_are_documented(package):
    home = importlib.import_module(package)
    for name in home.__all__:
        public = getattr(home, name)
        if name == "__version__":
            continue
        text = inspect.getdoc(public) or ""
        assert text, f"{package}.{name} has no docstring"
        plain = inspect.ismodule(public) or (
            inspect.isclass(public) and issubclass(public, Exception)
        )
        if not plain:
            assert re.search(r"^Examples\n-{8}\n", text, re.M), f"{package}.{name} shows no example"


def test_no_file_names_a_machine_or_a_registry():
    found = []
    for path in project_files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        for number, line in enumerate(text.splitlines(), 1):
            found += [
                f"{path.relative_to(ROOT)}:{number}: {match.group()}"
                for pattern in (MACHINE_PATH, REGISTRY)
                if (match := pattern.search(line))
            ]
    assert found == []
