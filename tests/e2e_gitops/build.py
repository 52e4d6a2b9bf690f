"""Build Argo CD, Flux and what they need ahead of time: `python -m tests.e2e_gitops.build`."""

from __future__ import annotations

import sys
import time

from tests.e2e_gitops.programs import find_tools


def main() -> None:
    """Build what is missing and print where everything is."""
    begun = time.monotonic()
    built = find_tools()
    for name, path in sorted({**built.paths, **built.sources}.items()):
        print(f"{name}\t{path}")
    print(f"ready after {time.monotonic() - begun:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
