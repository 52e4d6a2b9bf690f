"""Build the PromQL queries, each for all devices at once, and read device and holding pod from the labels of a series.

Names and units are those of dcgm-exporter's ``etc/default-counters.csv``, where ECC, violations and NVLink errors are off by
default and then missing.

dcgm-exporter writes ``pod``, ``namespace`` and ``container`` of the holder, and nothing for a free device. A scrape with
honor_labels keeps them; one without renames them to ``exported_pod`` and so on, and writes the exporter's own pod into
``pod``. Both kinds of scrape write the exporter's pod for a free device: the exporter must not count as its holder.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

Labels: TypeAlias = Mapping[str, str]

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
#: Names of the exporter's container, and a part of its pods' names.
_EXPORTERS: Final = frozenset({"dcgm-exporter", "nvidia-dcgm-exporter"})
_EXPORTER: Final = "dcgm-exporter"
#: Holder labels that no scrape sets itself, the most reliable first.
_OTHER_NAMES: Final = (
    ("exported_namespace", "exported_pod", "exported_container"),
    ("pod_namespace", "pod_name", "container_name"),
)


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
        names = f'__name__=~"{"|".join(metrics)}"'
        return f"{{{','.join((names, *self._matchers))}}}"


def _names(*groups: Iterable[str]) -> str:
    return ", ".join(name for group in groups for name in group)


class DeviceKey(NamedTuple):
    """A card or a MIG slice of it: by the card's UUID, else by node and index."""

    card: str
    slice: str


class DeviceHolder(NamedTuple):
    """The container that holds a device, and its share of a shared one; empty for none."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    share: str = ""


NO_HOLDER: Final = DeviceHolder()


def node_of(labels: Labels) -> str:
    """Return the node of a series."""
    return labels.get("Hostname") or labels.get("hostname") or ""


def card_of(labels: Labels) -> DeviceKey:
    """Return the device of a series."""
    return DeviceKey(labels.get("UUID") or f"{node_of(labels)}/{labels.get('gpu', '')}", labels.get("GPU_I_ID", ""))


def exporters_among(series: Iterable[Labels]) -> frozenset[tuple[str, str]]:
    """Return the exporter pods, by namespace and name: the ``pod`` labels beside an ``exported_pod``."""
    return frozenset((row.get("namespace", ""), row["pod"]) for row in series if row.get("exported_pod") and row.get("pod"))


def holder_of(labels: Labels, exporters: frozenset[tuple[str, str]]) -> DeviceHolder:
    """Return the holder of the device of a series."""
    share = labels.get("vgpu", "")
    for names in _OTHER_NAMES:
        namespace, pod, container = (labels.get(name, "") for name in names)
        if pod:
            return DeviceHolder(namespace, pod, container, share)
    namespace, pod, container = (labels.get(name, "") for name in ("namespace", "pod", "container"))
    if not pod or (namespace, pod) in exporters or container in _EXPORTERS or _EXPORTER in pod:
        return NO_HOLDER
    return DeviceHolder(namespace, pod, container, share)
