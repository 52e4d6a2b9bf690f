"""Read device and holding pod from the labels of a series.

dcgm-exporter writes ``pod``, ``namespace`` and ``container`` of the holder, and nothing for a free device. A scrape with
honor_labels keeps them; one without renames them to ``exported_pod`` and so on, and writes the exporter's own pod into
``pod``. Both kinds of scrape write the exporter's pod for a free device: the exporter must not count as its holder.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

Labels: TypeAlias = Mapping[str, str]

#: Names of the exporter's container, and a part of its pods' names.
_EXPORTERS: Final = frozenset({"dcgm-exporter", "nvidia-dcgm-exporter"})
_EXPORTER: Final = "dcgm-exporter"
#: Holder labels that no scrape sets itself, the most reliable first.
_OTHER_NAMES: Final = (
    ("exported_namespace", "exported_pod", "exported_container"),
    ("pod_namespace", "pod_name", "container_name"),
)


class DeviceKey(NamedTuple):
    """A card or a MIG slice of it: by the card's UUID, else by node and index."""

    card: str
    slice: str


class DeviceHolder(NamedTuple):
    """The container that holds a device, and its share of a shared one; empty for nobody."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    share: str = ""


NOBODY: Final = DeviceHolder()


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
        return NOBODY
    return DeviceHolder(namespace, pod, container, share)
