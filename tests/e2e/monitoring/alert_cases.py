"""For each alert of `manifests/cluster/monitoring`, series for which it fires and series for which it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = "NVIDIA H100 80GB HBM3"
_DRIVER = "570.86.15"

Labels = dict[str, str]


@dataclass(frozen=True)
class Case:
    """Series, and what an alert makes of them.

    Attributes:
        series: by series its values, two a minute, as promtool reads them: ``0x20 5x9`` is ten minutes of 0 and then five of 5.
        at: the time of the look.
        fires: the labels of each alert that fires then, but for its name, state and severity; none where it stays silent.
    """

    alert: str
    says: str
    series: Mapping[str, str]
    at: str
    fires: tuple[Labels, ...] = ()


def text(name: str, **labels: str) -> str:
    """A series as promtool writes it."""
    return name + "{" + ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"


def dcgm(field: str, gpu: int = 0, holder: str = "", **more: str) -> str:
    """A series as Prometheus has it of dcgm-exporter, scraped by our ServiceMonitor; ``holder`` is namespace/pod."""
    held = dict(zip(("exported_namespace", "exported_pod"), holder.split("/"), strict=True)) if holder else {}
    labels = {
        "gpu": str(gpu),
        "UUID": f"GPU-{gpu}",
        "pci_bus_id": f"00000000:{gpu:02X}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": MODEL,
        "hostname": "gpu-node-1",
        "DCGM_FI_DRIVER_VERSION": _DRIVER,
        **held,
        **({"exported_container": "main"} if held else {}),
        **_target("dcgm-exporter", "metrics", "gpu-operator"),
        "node": "gpu-node-1",
        **more,
    }
    return text(field, **labels)


def _target(service: str, port: str, namespace: str) -> Labels:
    return {
        "job": service,
        "service": service,
        "endpoint": port,
        "namespace": namespace,
        "pod": f"{service}-x7k2p",
        "container": service,
        "instance": "10.0.0.1:9400",
    }


def up(job: str, instance: str = "10.0.0.1:9400", **more: str) -> str:
    """Whether a target answered."""
    return text("up", job=job, instance=instance, **more)


def own(metric: str, replica: int = 1, job: str = "gpugate", **labels: str) -> str:
    """A series of gpugate itself; where both name a label, gpugate's own is honoured."""
    return text(metric, **(_own_target(job, replica) | labels))


def _own_target(job: str = "gpugate", replica: int = 1) -> Labels:
    return _target(job, "metrics", "gpugate-system") | {"instance": f"10.0.0.{replica}:8080"}


def card(gpu: int = 0, **more: str) -> Labels:
    """The labels by which alerts name a card."""
    return {"node": "gpu-node-1", "UUID": f"GPU-{gpu}", "gpu": str(gpu), "modelName": MODEL, **more}


def xid(code: int, gpu: int = 0, holder: str = "") -> str:
    """The last Xid of a card: each code is a series of its own."""
    return dcgm("DCGM_FI_DEV_XID_ERRORS", gpu, holder, err_code=str(code), err_msg=f"what {code} says")


def _framebuffer(used: str, free: str) -> dict[str, str]:
    return {dcgm("DCGM_FI_DEV_FB_USED", holder="a/p"): used, dcgm("DCGM_FI_DEV_FB_FREE", holder="a/p"): free}


def _counter(alert: str, field: str, rises: str = "0x60 1x60") -> tuple[Case, ...]:
    """A counter of faults: that rises, that rises as the pod which held the GPU goes, that stands still above zero."""
    before, after = dcgm(field, holder="team-a/train-0"), dcgm(field)
    return (
        Case(alert, "a count that rises", {before: rises}, "35m", (card(),)),
        Case(alert, "a count that rises as its pod ends", {before: "3x60 _x60", after: "_x61 9x60"}, "35m", (card(),)),
        Case(alert, "a count that stands still", {dcgm(field): "7x120"}, "35m"),
        Case(alert, "a count that stands still as the GPU changes hands", {before: "3x60 _x60", after: "_x61 3x60"}, "35m"),
    )


#: Utilisation in percent of two cards that one pod holds, for three hours.
_BUSY_AND_IDLE = {
    dcgm("DCGM_FI_DEV_GPU_UTIL", 0, "team-a/train-0"): "90x360",
    dcgm("DCGM_FI_DEV_GPU_UTIL", 1, "team-a/train-0"): "85x360",
    dcgm("DCGM_FI_DEV_GPU_UTIL", 2, "team-b/notebook-0"): "5x360",
}
_FAULTS = {
    dcgm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"): "0x120",
    dcgm("DCGM_FI_DEV_THERMAL_VIOLATION"): "0x120",
}
_ALLOCATABLE = text("kube_node_status_allocatable", node="gpu-node-2", resource="nvidia_com_gpu", unit="integer")

DCGM_CASES: tuple[Case, ...] = (
    Case("GPUFramebufferNearlyFull", "96 % in use", _framebuffer("78000x60", "3000x60"), "20m", (card(),)),
    # 50 % in use: used / free is 1, which the formula that is often written takes for full.
    Case("GPUFramebufferNearlyFull", "half in use", _framebuffer("40500x60", "40500x60"), "20m"),
    Case("GPUFramebufferNearlyFull", "full for a moment", _framebuffer("78000x10 1000x50", "3000x10 80000x50"), "20m"),
    Case(
        "GPUHeldAndNotUsed",
        "one pod of two that hold GPUs",
        _BUSY_AND_IDLE,
        "2h30m",
        ({"exported_namespace": "team-b", "exported_pod": "notebook-0"},),
    ),
    Case("GPUHeldAndNotUsed", "an idle GPU that nobody holds", {dcgm("DCGM_FI_DEV_GPU_UTIL"): "0x360"}, "2h30m"),
    Case(
        "GPUHeldAndNotUsed",
        "a slice of MIG, which has no utilisation of its own",
        {dcgm("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0, "team-b/serve-0", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb"): "0.1x360"},
        "2h30m",
        ({"exported_namespace": "team-b", "exported_pod": "serve-0"},),
    ),
    Case("GPUHeldAndNotUsed", "idle for half an hour", {dcgm("DCGM_FI_DEV_GPU_UTIL", 0, "a/p"): "90x270 0x90"}, "2h45m"),
    Case(
        "GPUFleetHeldAndNotUsed",
        "two cards held, a quarter of them used",
        {dcgm("DCGM_FI_DEV_GPU_UTIL", 0, "a/p"): "50x960", dcgm("DCGM_FI_DEV_GPU_UTIL", 1, "a/q"): "0x960"},
        "8h",
        ({},),
    ),
    Case(
        "GPUFleetHeldAndNotUsed",
        "free cards do not count",
        {dcgm("DCGM_FI_DEV_GPU_UTIL", 0, "a/p"): "80x960", dcgm("DCGM_FI_DEV_GPU_UTIL", 1): "0x960"},
        "8h",
    ),
    Case("GPUHot", "90 C", {dcgm("DCGM_FI_DEV_GPU_TEMP"): "90x60"}, "20m", (card(),)),
    Case("GPUHot", "85 C", {dcgm("DCGM_FI_DEV_GPU_TEMP"): "85x60"}, "20m"),
    Case("GPUHot", "90 C for two minutes", {dcgm("DCGM_FI_DEV_GPU_TEMP"): "70x30 90x4 70x30"}, "17m"),
    Case(
        "GPUThrottledByHeat",
        "more time throttled with every sample",
        {dcgm("DCGM_FI_DEV_THERMAL_VIOLATION"): "0+1000x120"},
        "30m",
        (card(),),
    ),
    Case("GPUThrottledByHeat", "throttled long ago", {dcgm("DCGM_FI_DEV_THERMAL_VIOLATION"): "123456x120"}, "30m"),
    Case(
        "GPUXid",
        "a first Xid",
        {xid(0, holder="a/p"): "0x60 _x60", xid(31, holder="a/p"): "_x61 31x60"},
        "35m",
        (card(),),
    ),
    Case("GPUXid", "another Xid after one that is there", {xid(13): "13x60 _x60", xid(79): "_x61 79x60"}, "35m", (card(),)),
    # increase() over the gauge would go on seeing 13 come where the pod changes.
    Case("GPUXid", "an old Xid as the GPU changes hands", {xid(13, holder="a/p"): "13x60 _x60", xid(13): "_x61 13x60"}, "35m"),
    Case("GPUXid", "an old Xid", {xid(13): "13x120"}, "35m"),
    Case("GPUXid", "no Xid", {xid(0): "0x120"}, "35m"),
    Case(
        "GPUXid",
        "the same Xid again, where the exporter counts them",
        {xid(31): "31x120", dcgm("DCGM_EXP_XID_ERRORS_COUNT", xid="31", window_size_in_ms="300000"): "0x60 1x10 0x50"},
        "32m",
        (card(),),
    ),
    Case("GPUXidNeedsReset", "Xid 79", {xid(79): "79x120"}, "35m", (card(err_code="79", err_msg="what 79 says"),)),
    Case("GPUXidNeedsReset", "Xid 31 of a program", {xid(31): "31x120"}, "35m"),
    *_counter("GPUMemoryErrorOfTwoBits", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    *_counter("GPUMemoryRowsReplaced", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    *_counter("GPUNVLinkErrors", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"),
    *_counter("GPUNVLinkErrors", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
    *_counter("GPUNVLinkErrors", "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
    Case(
        "GPUMemoryRowsUsedUp", "a row that could not be replaced", {dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE"): "1x9"}, "4m", (card(),)
    ),
    Case("GPUMemoryRowsUsedUp", "none", {dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE"): "0x9"}, "4m"),
    Case("GPUPCIeReplays", "20 a minute", {dcgm("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"): "0+10x120"}, "30m", (card(),)),
    Case("GPUPCIeReplays", "4 a minute", {dcgm("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"): "500+2x120"}, "30m"),
    Case(
        "DCGMExporterDown",
        "no answer for ten minutes",
        {up("dcgm-exporter", node="gpu-node-1"): "1x10 0x40", up("nvidia-dcgm-exporter", node="gpu-node-2"): "1x60"},
        "15m",
        ({"job": "dcgm-exporter", "instance": "10.0.0.1:9400", "node": "gpu-node-1"},),
    ),
    Case("DCGMExporterDown", "no answer once", {up("dcgm-exporter"): "1x10 0 1x40"}, "15m"),
    Case(
        "GPUNodeWithoutMetrics",
        "a second node, of which there are no series",
        {_ALLOCATABLE: "8x60", dcgm("DCGM_FI_DEV_GPU_TEMP"): "50x60"},
        "25m",
        ({"node": "gpu-node-2"},),
    ),
    Case(
        "GPUNodeWithoutMetrics",
        "a node that is measured, and one without GPUs",
        {
            _ALLOCATABLE: "8x60",
            text("kube_node_status_allocatable", node="cpu-1", resource="nvidia_com_gpu", unit="integer"): "0x60",
            dcgm("DCGM_FI_DEV_GPU_TEMP", node="gpu-node-2"): "50x60",
        },
        "25m",
    ),
    Case("GPUFaultsNotCollected", "the exporter's default list", {dcgm("DCGM_FI_DEV_GPU_TEMP"): "50x120"}, "45m", ({},)),
    Case("GPUFaultsNotCollected", "ours", {dcgm("DCGM_FI_DEV_GPU_TEMP"): "50x120", **_FAULTS}, "45m"),
    Case("GPUFaultsNotCollected", "no exporter at all", _FAULTS, "45m"),
)


def _refused(values: str, mode: str = "Enforce", dry_run: str = "false") -> dict[str, str]:
    return {own("gpugate_refusals_total", rule="host-memory", mode=mode, dry_run=dry_run): values}


def _durations(slow: str) -> dict[str, str]:
    """Buckets of a hundred reviews a sample, of which the last one takes as long as ``slow`` says."""
    counts = {"0.01": "0+98x60", "0.1": "0+98x60", "0.5": slow, "+Inf": "0+100x60"}
    return {own("gpugate_review_duration_seconds_bucket", endpoint="mutate", le=le): values for le, values in counts.items()}


def _generations(first: str, second: str) -> dict[str, str]:
    return {
        up("gpugate", "10.0.0.1:8080"): "1x120",
        own("gpugate_policy_generation", 1, policy="default"): first,
        own("gpugate_policy_generation", 2, policy="default"): second,
    }


#: Seconds since 1970, where promtool's clock begins: an hour, and a hundred days.
_SOON, _LATE = "3600x60", "8640000x60"
#: Two days of one refusal in an hour, then 200 in one, at two samples a minute.
_QUIET_THEN_MANY = "0+0x120 1+0x120 2+0x2640 3+1.7x120"

OWN_CASES: tuple[Case, ...] = (
    Case("GpugateDown", "both replicas are down", {up("gpugate", "1"): "1x5 0x30", up("gpugate", "2"): "0x40"}, "10m", ({},)),
    Case("GpugateDown", "nothing is scraped", {up("other"): "1x40"}, "10m", ({},)),
    Case("GpugateDown", "one of two is down", {up("gpugate", "1"): "1x40", up("gpugate", "2"): "0x40"}, "10m"),
    Case(
        "GpugateReplicaDown",
        "one of two is down",
        {up("gpugate", "1"): "1x60", up("gpugate", "2"): "0x60"},
        "20m",
        ({"job": "gpugate", "instance": "2"},),
    ),
    Case("GpugateReplicaDown", "a rollout", {up("gpugate", "1"): "1x20 0x4 1x40"}, "20m"),
    Case("GpugateSlow", "two in a hundred take half a second", _durations("0+100x60"), "25m", ({"endpoint": "mutate"},)),
    Case(
        "GpugateSlow",
        "one in a thousand does",
        {
            own("gpugate_review_duration_seconds_bucket", endpoint="mutate", le="0.01"): "0+999x60",
            own("gpugate_review_duration_seconds_bucket", endpoint="mutate", le="+Inf"): "0+1000x60",
        },
        "25m",
    ),
    Case(
        "GpugateFails",
        "a rule breaks once more",
        {own("gpugate_rule_failures_total", rule="numa"): "1x20 2x40"},
        "12m",
        ({"rule": "numa"},),
    ),
    Case(
        "GpugateFails",
        "a rule breaks for the first time",
        {own("gpugate_rule_failures_total", rule="numa"): "_x40 1x9"},
        "22m",
        ({"rule": "numa"},),
    ),
    Case("GpugateFails", "a rule broke once", {own("gpugate_rule_failures_total", rule="numa"): "1x80"}, "40m"),
    Case(
        "GpugateBadRequests",
        "somebody calls again and again",
        {own("gpugate_bad_requests_total", reason="not-json"): "0+1x80"},
        "40m",
        ({"reason": "not-json"},),
    ),
    Case("GpugateBadRequests", "somebody called once", {own("gpugate_bad_requests_total", reason="not-json"): "1x80"}, "40m"),
    Case("GpugateRefusalsJump", "many after two quiet days", _refused(_QUIET_THEN_MANY), "25h", ({"rule": "host-memory"},)),
    Case("GpugateRefusalsJump", "as many as every hour", _refused("0+1x3200"), "25h"),
    Case("GpugateRefusalsJump", "many that only would be refused", _refused(_QUIET_THEN_MANY, mode="DryRun"), "25h"),
    Case("GpugateRefusalsJump", "many rehearsals", _refused(_QUIET_THEN_MANY, dry_run="true"), "25h"),
    Case("GpugateNoPolicyInForce", "no policy", {up("gpugate"): "1x120"}, "30m", ({},)),
    Case("GpugateNoPolicyInForce", "one of which nothing is in force", _generations("0x120", "0x120"), "30m", ({},)),
    Case("GpugateNoPolicyInForce", "one in force", _generations("3x120", "3x120"), "30m"),
    Case("GpugateNoPolicyInForce", "gpugate is down, which is told otherwise", {up("gpugate"): "0x120"}, "30m"),
    Case("GpugatePolicyInvalid", "one", {own("gpugate_policy_invalid", policy="team-a"): "1x40"}, "10m", ({"policy": "team-a"},)),
    Case("GpugatePolicyInvalid", "none", {own("gpugate_policy_invalid", policy="team-a"): "0x40"}, "10m"),
    Case("GpugatePoliciesDiffer", "one replica stays behind", _generations("3x120", "4x120"), "30m", ({"policy": "default"},)),
    Case("GpugatePoliciesDiffer", "both change over", _generations("3x50 4x70", "3x51 4x69"), "30m"),
    Case(
        "GpugateFactsUnknown",
        "one kind",
        {own("gpugate_facts_synced", resource="nodes"): "0x60", own("gpugate_facts_synced", resource="pods"): "1x60"},
        "20m",
        (_own_target() | {"resource": "nodes"},),
    ),
    Case("GpugateFactsUnknown", "while it starts", {own("gpugate_facts_synced", resource="nodes"): "0x5 1x60"}, "20m"),
    Case(
        "GpugateFactsStale",
        "nothing was heard for seven minutes and more",
        {own("gpugate_facts_age_seconds", resource="nodes"): "420+30x60"},
        "10m",
        (_own_target() | {"resource": "nodes"},),
    ),
    Case("GpugateFactsStale", "within five minutes", {own("gpugate_facts_age_seconds", resource="nodes"): "300x60"}, "10m"),
    Case(
        "GpugateCertificateEnds",
        "within the hour",
        {own("gpugate_serving_certificate_not_after_seconds"): _SOON},
        "20m",
        (_own_target(),),
    ),
    Case("GpugateCertificateEnds", "in a hundred days", {own("gpugate_serving_certificate_not_after_seconds"): _LATE}, "20m"),
    Case("GpugateCertificateEnds", "there is none", {own("gpugate_serving_certificate_not_after_seconds"): "0x60"}, "20m"),
    Case(
        "GpugateCertificateRejected",
        "every check finds a key of another certificate",
        {own("gpugate_serving_certificate_rejected_total", reason="key-mismatch"): "0+3x60"},
        "20m",
        ({"instance": "10.0.0.1:8080", "reason": "key-mismatch"},),
    ),
    Case(
        "GpugateCertificateRejected",
        "for a minute, half an hour ago",
        {own("gpugate_serving_certificate_rejected_total", reason="key-mismatch"): "0x10 3 6x110"},
        "35m",
    ),
    Case(
        "GpugateEventsLost",
        "the apiserver takes none",
        {own("gpugate_events_total", outcome="refused"): "0+1x120"},
        "45m",
        ({"outcome": "refused"},),
    ),
    Case(
        "GpugateEventsLost",
        "all are written or brought together",
        {own("gpugate_events_total", outcome="aggregated"): "0+1x120"},
        "45m",
    ),
    Case(
        "GpugateRecordingsLost",
        "the disk is full",
        {own("gpugate_recordings_total", outcome="dropped"): "0+5x120"},
        "45m",
        ({"outcome": "dropped"},),
    ),
    Case("GpugateRecordingsLost", "all are written", {own("gpugate_recordings_total", outcome="written"): "0+5x120"}, "45m"),
    Case(
        "GpugateControllerWithoutLeader",
        "two that wait",
        {own("gpugate_leader", number, "gpugate-controller"): "0x60" for number in (1, 2)},
        "20m",
        ({},),
    ),
    Case("GpugateControllerWithoutLeader", "none there", {up("gpugate"): "1x60"}, "20m", ({},)),
    Case(
        "GpugateControllerWithoutLeader",
        "one leads",
        {own("gpugate_leader", 1, "gpugate-controller"): "0x60", own("gpugate_leader", 2, "gpugate-controller"): "1x60"},
        "20m",
    ),
    Case("GpugateGangsStuck", "two", {own("gpugate_gangs_stuck", 1, "gpugate-controller"): "2x60"}, "20m", ({},)),
    Case("GpugateGangsStuck", "none", {own("gpugate_gangs_stuck", 1, "gpugate-controller"): "0x60"}, "20m"),
)
