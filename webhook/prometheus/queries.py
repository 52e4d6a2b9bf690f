"""The PromQL queries: few, each for all devices at once, built from the constants below.

Names and units are those of dcgm-exporter's ``etc/default-counters.csv``, where ECC, violations and NVLink errors are off by
default and then missing.
"""

from collections.abc import Iterable
from typing import Final

UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"
"""Percent of the last sample period in which a kernel ran; missing for MIG slices."""
ACTIVE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""The same as a ratio, from the profiling unit, also of MIG slices."""
USED: Final = "DCGM_FI_DEV_FB_USED"
FREE: Final = "DCGM_FI_DEV_FB_FREE"
RESERVED: Final = "DCGM_FI_DEV_FB_RESERVED"
TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
POWER: Final = "DCGM_FI_DEV_POWER_USAGE"
XID: Final = "DCGM_FI_DEV_XID_ERRORS"
"""A gauge that holds the last Xid: no counter."""
REASONS: Final = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
"""Bits of why the clocks are lowered; the second is the older name."""
SINGLE_BIT: Final = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"
DOUBLE_BIT: Final = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
REPLAYS: Final = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
THERMAL: Final = "DCGM_FI_DEV_THERMAL_VIOLATION"
NVLINK: Final = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
LINK_ERRORS: Final = tuple(
    f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL" for kind in ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
)

UTILISATIONS: Final = (UTIL, ACTIVE)
_HELD_BY: Final = (*UTILISATIONS, USED)
GAUGES: Final = (*_HELD_BY, FREE, RESERVED)
COUNTERS: Final = (SINGLE_BIT, DOUBLE_BIT, REPLAYS, THERMAL, NVLINK, *LINK_ERRORS)

#: Labels that identify a card.
_CARD: Final = ("Hostname", "hostname", "gpu", "UUID", "modelName", "GPU_I_ID", "GPU_I_PROFILE")
#: Labels of the holding pod: dcgm-exporter's, those renamed by Prometheus (``exported_``), and those of old exporters.
_POD: Final = ("pod", "namespace", "container")
_HELD: Final = (*_POD, *(f"exported_{name}" for name in _POD), "pod_name", "pod_namespace", "container_name", "vgpu")


class Queries:
    """Builds queries with the given matchers."""

    def __init__(self, matchers: Iterable[str] = ()) -> None:
        self._matchers = tuple(matchers)

    def gauges(self) -> str:
        """Query utilisation and memory of every device now, by holder."""
        return f"max by (__name__, {_names(_CARD, _HELD)}) ({self._any_of(GAUGES)})"

    def health(self) -> str:
        """Query counters, the last Xid and the clock reasons of every card now."""
        return f"max by (__name__, {_names(_CARD)}) ({self._any_of((*COUNTERS, XID, *REASONS))})"

    def counters_before(self, seconds: int) -> str:
        """Query the counters of ``seconds`` ago."""
        return f"max by (__name__, {_names(_CARD)}) ({self._any_of(COUNTERS)} offset {seconds}s)"

    def held_before(self, seconds: int) -> str:
        """Query the holders of ``seconds`` ago."""
        return f"count by ({_names(_CARD, _HELD)}) ({self._any_of(_HELD_BY)} offset {seconds}s)"

    def over(self, function: str, metric: str, seconds: int) -> str:
        """Query a metric over the last ``seconds``, by holder: ``max``, ``sum`` or ``count``."""
        outer = "max" if function == "max" else "sum"
        return f"{outer} by ({_names(_CARD, _HELD)}) ({function}_over_time({self._one(metric)}[{seconds}s]))"

    def _one(self, metric: str) -> str:
        return f"{metric}{{{','.join(self._matchers)}}}" if self._matchers else metric

    def _any_of(self, metrics: Iterable[str]) -> str:
        return f"{{{','.join((_any(metrics), *self._matchers))}}}"


def _any(metrics: Iterable[str]) -> str:
    return f'__name__=~"{"|".join(metrics)}"'


def _names(*groups: Iterable[str]) -> str:
    return ", ".join(name for group in groups for name in group)
