"""The wheel, the sdist and the editable install: each installs and imports.

The throwaway environments hold nothing but the project; a .pth file lets them see the
dependencies of the environment that runs the tests.
"""

import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

import dpcausal_bayes
from layout import PACKAGE, ROOT, module_files

pytestmark = pytest.mark.packaging

SOURCES = ("pyproject.toml", "README.md", "LICENSE", PACKAGE, "models")

# Run in the throwaway environment, outside the checkout.
PROBE = f"""
import importlib, importlib.metadata, importlib.resources, sys
for name in {list(module_files())!r}:
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.argv[1]), module.__file__
assert importlib.resources.files("{PACKAGE}").joinpath("py.typed").is_file(), "no py.typed"
assert importlib.metadata.version("{PACKAGE}") == "{dpcausal_bayes.__version__}"
"""


def run(*command, cwd):
    ended = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Copy the sources: building leaves files behind."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def dist(checkout, tmp_path_factory):
    """Build the sdist, and the wheel from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".", cwd=checkout)
    return folder


@pytest.fixture
def install(tmp_path):
    """Return a function that installs into a new environment and imports every module there."""

    def install_and_import(*what, home):
        run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=tmp_path)
        python = tmp_path / "venv" / "bin" / "python"
        (site,) = tmp_path.glob("venv/lib/python*/site-packages")
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        pip = (sys.executable, "-m", "pip", "--python", python)
        # The .pth file also shows the project as installed for the tests: it is not to be touched.
        flags = ("--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", "-q")
        run(*pip, "install", *flags, *what, cwd=tmp_path)
        run(python, "-I", "-W", "error", "-c", PROBE, home or site, cwd=tmp_path)

    return install_and_import


def test_wheel_holds_the_package_and_nothing_else(dist):
    (wheel,) = dist.glob("*.whl")
    files = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in files}
    assert tops == {PACKAGE, f"{PACKAGE}-{dpcausal_bayes.__version__}.dist-info"}
    assert len([name for name in files if name.endswith(".py")]) == len(module_files())


def test_wheel_installs(dist, install):
    (wheel,) = dist.glob("*.whl")
    install(wheel, home=None)


def test_sdist_installs(dist, install):
    (sdist,) = dist.glob("*.tar.gz")
    install(sdist, home=None)


def test_editable_installs(checkout, install):
    install("--editable", checkout, home=checkout)
