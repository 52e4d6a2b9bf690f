"""Series shaped as dcgm-exporter writes them, for a scrape or as a history.

Labels and their order are those of dcgm-exporter's own rendering: ``gpu``, ``UUID``, ``pci_bus_id``, ``device``, ``modelName``,
for a MIG slice ``GPU_I_PROFILE`` and ``GPU_I_ID``, ``Hostname``, then the pod's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Value = float | Callable[[float], float]
"""A value, or what gives it by how many hours ago."""

UTIL, ACTIVE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
USED, FREE, RESERVED = (f"DCGM_FI_DEV_FB_{name}" for name in ("USED", "FREE", "RESERVED"))
COUNTERS = frozenset(
    {
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "DCGM_FI_DEV_THERMAL_VIOLATION",
    }
)
A100, T4 = "NVIDIA A100-SXM4-80GB", "Tesla T4"
EXPORTER = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x7x2p", "container": "nvidia-dcgm-exporter"}


class Spelling(enum.Enum):
    """How the holder's labels come out of a scrape."""

    HONOURED = "honor_labels: true"
    RENAMED = "honor_labels: false"
    OLD = "--use-old-namespace"


@dataclass(frozen=True)
class Device:
    """A card or slice, who has it, and its values by metric."""

    node: str
    number: int
    values: Mapping[str, Value]
    holder: tuple[str, str, str] | None = None
    model: str = A100
    profile: str = ""
    instance: str = ""
    hours: float = 1000.0
    """For how long its series have been there."""

    def labels(self, spelling: Spelling | None) -> dict[str, str]:
        """Its labels as Prometheus has them; as the exporter writes them where no spelling is given."""
        found = {
            "gpu": str(self.number),
            "UUID": f"GPU-{self.node}-{self.number}",
            "pci_bus_id": f"00000000:{self.number:02X}:00.0",
            "device": f"nvidia{self.number}",
            "modelName": self.model,
        }
        if self.profile:
            found |= {"GPU_I_PROFILE": self.profile, "GPU_I_ID": self.instance}
        found |= {"Hostname": self.node, "DCGM_FI_DRIVER_VERSION": "550.90.07"}
        return found | _holder(self.holder, spelling)


def _holder(holder: tuple[str, str, str] | None, spelling: Spelling | None) -> dict[str, str]:
    names = dict(zip(("namespace", "pod", "container"), holder or (), strict=False))
    if spelling is None:
        return names
    if spelling is Spelling.OLD:
        return EXPORTER | dict(zip(("pod_namespace", "pod_name", "container_name"), names.values(), strict=False))
    if spelling is Spelling.RENAMED:
        return EXPORTER | {f"exported_{key}": value for key, value in names.items()}
    return EXPORTER | names


def exposition(devices: Iterable[Device]) -> str:
    """What an exporter answers to a scrape."""
    return "".join(f"{line}\n" for line in _lines(list(devices), None, (None,), 0.0))


def history(devices: Iterable[Device], spelling: Spelling, *, now: float, hours: float, step: float = 120.0) -> str:
    """The same for some hours up to ``now``, as OpenMetrics with times, as a Prometheus that scraped it would have it."""
    count = int(hours * 3600 / step)
    times = [round(now) - step * at for at in range(count, -1, -1)]
    return "".join(f"{line}\n" for line in _lines(list(devices), spelling, times, round(now))) + "# EOF\n"


def _lines(devices: Sequence[Device], spelling: Spelling | None, times: Sequence[float | None], now: float) -> Iterator[str]:
    for metric in sorted({metric for one in devices for metric in one.values}):
        # OpenMetrics wants counters to end in _total, which DCGM's do not.
        yield f"# TYPE {metric} {'counter' if metric in COUNTERS and spelling is None else 'gauge'}"
        for one in devices:
            value = one.values.get(metric)
            if value is None:
                continue
            labels = ",".join(f'{key}="{text}"' for key, text in one.labels(spelling).items())
            for time in times:
                if time is not None and time < now - one.hours * 3600:
                    continue
                shown = value if not callable(value) else value(0.0 if time is None else (now - time) / 3600)
                yield f"{metric}{{{labels}}} {shown:.6g}" + ("" if time is None else f" {time:.0f}")
