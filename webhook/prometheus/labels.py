"""Which device a series is about, and which pod has it.

dcgm-exporter writes ``pod``, ``namespace`` and ``container`` of whoever has a device, and nothing where nobody has. A scrape that
honours labels keeps them; one that does not renames them to ``exported_pod`` and so on, and puts the exporter's own pod into
``pod``. So does either kind of scrape for a device that nobody has: the exporter itself must not be taken for its holder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

Labels: TypeAlias = Mapping[str, str]

#: What the exporter's container is called, and what its pods' names have in them.
_EXPORTERS: Final = frozenset({"dcgm-exporter", "nvidia-dcgm-exporter"})
_EXPORTER: Final = "dcgm-exporter"
#: The names of a holder's labels that no scrape's own labels have, the surest first.
_OTHER_NAMES: Final = (
    ("exported_namespace", "exported_pod", "exported_container"),
    ("pod_namespace", "pod_name", "container_name"),
)


class DeviceKey(NamedTuple):
    """A card, or a MIG slice of one: by the card's UUID, else by its node and number there."""

    card: str
    slice: str


class DeviceHolder(NamedTuple):
    """Who has a device: a container of a pod, and which share where several have it; empty for nobody."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    share: str = ""


NOBODY: Final = DeviceHolder()


def node_of(labels: Labels) -> str:
    """The node that a series comes from."""
    return labels.get("Hostname") or labels.get("hostname") or ""


def card_of(labels: Labels) -> DeviceKey:
    """The device that a series is about."""
    return DeviceKey(labels.get("UUID") or f"{node_of(labels)}/{labels.get('gpu', '')}", labels.get("GPU_I_ID", ""))


def exporters_among(series: Iterable[Labels]) -> frozenset[tuple[str, str]]:
    """The pods that are exporters, by namespace and name: those that stand beside a pod whose name was changed for theirs."""
    return frozenset((one.get("namespace", ""), one["pod"]) for one in series if one.get("exported_pod") and one.get("pod"))


def holder_of(labels: Labels, exporters: frozenset[tuple[str, str]]) -> DeviceHolder:
    """Who has the device of a series."""
    share = labels.get("vgpu", "")
    for names in _OTHER_NAMES:
        namespace, pod, container = (labels.get(name, "") for name in names)
        if pod:
            return DeviceHolder(namespace, pod, container, share)
    namespace, pod, container = (labels.get(name, "") for name in ("namespace", "pod", "container"))
    if not pod or (namespace, pod) in exporters or container in _EXPORTERS or _EXPORTER in pod:
        return NOBODY
    return DeviceHolder(namespace, pod, container, share)
