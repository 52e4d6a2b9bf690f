"""Build the control plane's programs ahead of time: `python -m tests.e2e.controlplane.build`.

Prints the path of each program, and of each Go module whose manifests are used; progress goes to the standard error.
"""

from __future__ import annotations

import sys
import time

from tests.e2e.controlplane.programs import CLUSTER_BUILD, GANG_BUILDS, build_all, find_programs


def main() -> None:
    """Build what is missing and print where everything is."""
    begun = time.monotonic()
    built, gangs = find_programs(), build_all((*GANG_BUILDS, CLUSTER_BUILD))
    for name, path in sorted({**built.paths, **built.sources, **gangs.paths, **gangs.sources}.items()):
        print(f"{name}\t{path}")
    print(f"ready after {time.monotonic() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
