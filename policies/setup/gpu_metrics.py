"""Names of GPU metrics: what exporters write, and what is written for them by mistake.

Sources: NVIDIA dcgm-exporter ``etc/default-counters.csv`` and its own counters (``DCGM_EXP_*``); utkuozdemir/nvidia_gpu_exporter
``docs/METRICS.md`` for ``nvidia_smi_*``. NVIDIA's device plugin writes no metrics of GPUs at all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

USED: Final = "DCGM_FI_DEV_FB_USED"
FREE: Final = "DCGM_FI_DEV_FB_FREE"
XID: Final = "DCGM_FI_DEV_XID_ERRORS"


class Instead(NamedTuple):
    """What to write for a name that no exporter writes.

    Attributes:
        dcgm: the metric of dcgm-exporter.
        smi: the metric of nvidia_gpu_exporter.
    """

    dcgm: str
    smi: str = ""

    @property
    def sentence(self) -> str:
        """What to write, a sentence."""
        other = f", or {self.smi} (nvidia_gpu_exporter)" if self.smi else ""
        return f"Write {self.dcgm} (dcgm-exporter){other}."


_UTILISATION: Final = Instead("DCGM_FI_DEV_GPU_UTIL", "nvidia_smi_utilization_gpu_ratio, from 0 to 1")
_MEMORY: Final = Instead(USED, "nvidia_smi_memory_used_bytes")
_TEMPERATURE: Final = Instead("DCGM_FI_DEV_GPU_TEMP", "nvidia_smi_temperature_gpu")
_POWER: Final = Instead("DCGM_FI_DEV_POWER_USAGE", "nvidia_smi_power_draw_watts")
#: Names that are found in guides and dashboards, and that no exporter writes.
UNWRITTEN: Final = {
    "nvidia_smi_utilization_gpu": _UTILISATION,
    "nvidia_smi_gpu_utilization": _UTILISATION,
    "nvidia_smi_memory_used_mb": _MEMORY,
    "nvidia_smi_memory_used": _MEMORY,
    "nvidia_smi_memory_total_mb": Instead(f"{USED} + {FREE}", "nvidia_smi_memory_total_bytes"),
    "nvidia_smi_gpu_temperature": _TEMPERATURE,
    "nvidia_smi_power_draw": _POWER,
    "DCGM_FI_DEV_GPU_UTILIZATION": _UTILISATION,
    "DCGM_FI_DEV_MEM_USED": _MEMORY,
    "DCGM_FI_DEV_MEMORY_USED": _MEMORY,
    "DCGM_FI_DEV_GPU_TEMPERATURE": _TEMPERATURE,
    "DCGM_FI_DEV_POWER_DRAW": _POWER,
    "DCGM_FI_DEV_XID_ERROR": Instead(XID),
}
