"""The main job on real data, twice: a release of labels, then a release of moments.

Run by ``make demo``. What it draws goes to the folder ``outputs``.
"""

import sys
import time

try:
    import causaldata  # noqa: F401
except ModuleNotFoundError:
    sys.exit("The demo's data are in the package causaldata: run `pip install causaldata`.")

import demo_label_release
import demo_moment_release


def main() -> None:
    """Run both halves of the demo."""
    start = time.perf_counter()
    print("1. A TRIAL WITHIN CLUSTERS, RELEASED AS RANDOMISED LABELS\n")
    demo_label_release.main()
    print("\n\n2. A JOB TRAINING TRIAL WITH COVARIATES, RELEASED AS NOISY MOMENTS\n")
    demo_moment_release.main()
    print(f"\n{time.perf_counter() - start:.0f} s in all.")


if __name__ == "__main__":
    main()
