"""Return freed memory to the system."""

import ctypes
from typing import Final

#: Options of glibc's `mallopt`, and the size from which memory is taken from the system by itself. Bytes.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_LARGE: Final = 128 * 1024


def return_large_memory() -> None:
    """Return large freed blocks to the system at once; without glibc, do nothing.

    glibc raises its threshold when large blocks are freed. Then the bodies of a burst of large reviews leave gaps that stay.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, _LARGE)
