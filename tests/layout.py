"""Where the project's files are, for the tests that look at the code rather than run it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "dpcausal_bayes"


def module_files() -> dict[str, Path]:
    """Import name -> file, of every module that is installed."""
    found = {}
    for top, prefix in ((ROOT / PACKAGE, PACKAGE), (ROOT / "models", f"{PACKAGE}.models")):
        for path in sorted(top.rglob("*.py")):
            parts = path.relative_to(top).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join([prefix, *parts])] = path
    return found


def project_files() -> list[Path]:
    """Every file that git holds or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return [path for path in paths if path.is_file()]  # git still lists what was just deleted
