"""`gpugate` with another wall clock and fast checks of its certificate: `python -m tests.shared.clocked FILE serve ...`.

FILE has the seconds that the clock is ahead; it is read whenever the program asks for the time. The monotonic clock goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

_REAL, _REAL_NS = time.time, time.time_ns


def jump(file: Path, seconds: float) -> None:
    """Set the clock of the programs that read ``file`` ahead by so many seconds."""
    new = file.with_suffix(".new")
    new.write_text(str(seconds), encoding="ascii")
    new.replace(file)


def _clock(file: Path) -> Callable[[], float]:
    def now() -> float:
        return _REAL() + float(file.read_text(encoding="ascii"))

    return now


def _main() -> None:
    file = Path(sys.argv.pop(1))
    now = _clock(file)
    time.time = now
    time.time_ns = lambda: int(now() * 1e9)
    from gpugate.webhook.admission import serving_certificate  # noqa: PLC0415 - after the clock is in place
    from gpugate.webhook.cli.main import main  # noqa: PLC0415

    serving_certificate._INTERVAL = serving_certificate._RETRY = 0.05
    main()


if __name__ == "__main__":
    _main()
