# ruff: noqa: E501 - what people write in clusters is long
"""Audits to make reports from: one as a platform team would see it, and those at the edges."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

from gpugate.policies.cluster.gpu_usage import DeviceUse, Health, Span
from gpugate.policies.findings import Mode
from gpugate.policies.gangs.status import GangState
from gpugate.webhook.audit.model import (
    Audit,
    AuditedWorkload,
    Effect,
    Exemption,
    Fleet,
    Item,
    NodeSummary,
    PolicyLine,
    QueueLine,
    QuotaSummary,
    Run,
    ShapeSummary,
    Used,
)

GIB = 1 << 30
AT = "2026-03-02T09:30:00Z"
#: 2026-03-02T05:10:00Z
STUCK_SINCE = 1772428200.0

MODES = {
    "accelerator-names": Mode.ENFORCE,
    "tolerations": Mode.ENFORCE,
    "vram": Mode.DRY_RUN,
    "queue": Mode.MUTATE,
    "host-memory": Mode.DRY_RUN,
    "numa": Mode.DRY_RUN,
    "shared-memory": Mode.ENFORCE,
    "gang": Mode.DRY_RUN,
    "gang-packing": Mode.DRY_RUN,
    "queue-quota": Mode.DRY_RUN,
    "namespace-limits": Mode.MUTATE,
    "stranding": Mode.DRY_RUN,
    "commitment": Mode.DRY_RUN,
}
TEAMS = {
    "research-llm": ("llm-pretrain", "llm-eval"),
    "vision": ("vision-train", "vision-labels"),
    "recsys": ("recsys-prod", "recsys-exp"),
    "speech": ("speech",),
    "platform": ("ml-platform", "notebooks"),
    "": ("sandbox",),
}
#: What rules say, as they say it: rule, effect, reason, path, message, remedy.
SAYINGS: Sequence[tuple[str, Effect, str, str, str, str]] = (
    (
        "host-memory",
        Effect.REFUSE,
        "Overcommit",
        "spec.template.spec.containers[0].resources.limits.memory",
        "limit 1536Gi / request 256Gi = 6, above the ratio of 2 that the policy allows",
        "Write resources.requests.memory: 768Gi or more, or lower the limit.",
    ),
    (
        "stranding",
        Effect.REFUSE,
        "StrandsAccelerators",
        "spec.template.spec.containers",
        "1 of nvidia.com/gpu with 1400Gi memory on H100 80GB is 5.6 times the fair share of memory, 250Gi: it leaves 600Gi, at that share enough for 2 of the 7 other GPUs, 5 stranded; of pods like this 1 fits a node with accelerators for 8",
        "Ask for 250Gi of memory per GPU, or for 6 GPUs.",
    ),
    (
        "gang-packing",
        Effect.REFUSE,
        "PoolTooSmall",
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers",
        "a gang of 40 pods with 8 nvidia.com/gpu each does not fit the 24 nodes that it may run on; when empty, these hold 24 x 1 (H100 80GB) = 24 < 40",
        "Make the gang at most 24 pods, request less per pod, or allow more nodes.",
    ),
    (
        "vram",
        Effect.REFUSE,
        "NoCardHolds",
        "metadata.annotations[gpugate.io/model-parameters]",
        "70B parameters x 2 bytes = 140 GB: 140 GB > 80 GB, the memory of the largest card that the pods may use, H100 80GB",
        'Split one copy over 2 GPUs and write gpugate.io/split: "2".',
    ),
    (
        "host-memory",
        Effect.CHANGE,
        "Changed",
        "spec.template.spec.containers[0].resources.limits.memory",
        "resources.limits.memory: 250Gi is put in, the share of a node that goes with 1 GPU",
        "",
    ),
    (
        "numa",
        Effect.CHANGE,
        "Changed",
        "spec.template.spec.containers[0].resources",
        "requests are raised to the limits, so that the pod is Guaranteed with 12 whole CPUs",
        "",
    ),
    (
        "shared-memory",
        Effect.CHANGE,
        "Changed",
        "spec.template.spec.volumes",
        "/dev/shm of 16Gi is put in: an emptyDir in memory, mounted in trainer",
        "",
    ),
    ("tolerations", Effect.CHANGE, "Changed", "spec.template.spec.tolerations", "tolerates nvidia.com/gpu:NoSchedule", ""),
    (
        "accelerator-names",
        Effect.REFUSE,
        "UnknownName",
        "spec.template.spec.containers[0].resources.limits",
        "no device plugin serves nvidia.com/gpus",
        "Write nvidia.com/gpu.",
    ),
    (
        "queue",
        Effect.WARN,
        "QueueMissing",
        "metadata.labels[kueue.x-k8s.io/queue-name]",
        "names no queue, and the namespace has three: Kueue does not see the workload",
        "Write kueue.x-k8s.io/queue-name: research.",
    ),
    (
        "gang",
        Effect.CHANGE,
        "Changed",
        "spec.template.metadata.labels",
        "the pods get the label scheduling.x-k8s.io/pod-group: they start together or not at all",
        "",
    ),
    (
        "queue-quota",
        Effect.UNKNOWN,
        "QuotaUnknown",
        "",
        "the cluster's clusterqueues are not synced yet, so gpugate cannot tell whether the quota could hold it",
        "Try again in a few seconds.",
    ),
    (
        "commitment",
        Effect.WARN,
        "Overpromised",
        "spec.template.spec.containers[0].resources.limits.memory",
        "memory limits on gpu-h100-07 would come to 2720Gi of 2015Gi, a ratio of 1.35 above 1.25",
        "Lower the limit to 768Gi, or raise the ratio of the policy.",
    ),
)
KINDS = (("batch/v1", "Job"), ("kubeflow.org/v1", "PyTorchJob"), ("apps/v1", "Deployment"), ("ray.io/v1", "RayJob"), ("v1", "Pod"))
NAMES = (
    "pretrain-7b",
    "finetune-lora",
    "eval-nightly",
    "embed-server",
    "ocr-sweep",
    "ranker",
    "asr-train",
    "notebook",
    "distill",
    "tts-serve",
)


def item(saying: int, mode: Mode | None = None) -> Item:
    rule, effect, reason, path, message, remedy = SAYINGS[saying]
    return Item(rule, "gpu-default@7", mode or MODES[rule], effect, reason, path, message, remedy)


def workload(
    name: str, *items: Item, namespace: str = "team-a", team: str = "a", devices: int = 1, exemption: Exemption | None = None
) -> AuditedWorkload:
    return AuditedWorkload(
        "batch/v1",
        "Job",
        namespace,
        name,
        f"uid-{name}",
        team,
        "main",
        1,
        (("nvidia.com/gpu", devices),),
        tuple(sorted(items, key=str)),
        exemption,
    )


def workloads(count: int, *, seed: int = 1, clean: float = 0.3) -> tuple[AuditedWorkload, ...]:
    """``count`` workloads of all teams; about the share ``clean`` of them without a finding, the others with one to four."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    found: list[AuditedWorkload] = []
    teams = [team for team in TEAMS for _ in range(3 if team.startswith("r") else 2 if team else 1)]
    refusing = [place for place, one in enumerate(SAYINGS) if one[1] is Effect.REFUSE]
    others = [place for place in range(len(SAYINGS)) if place not in refusing]
    for place in range(count):
        team = chance.choice(teams)
        version, kind = chance.choice(KINDS)
        said = () if chance.random() < clean else tuple(sorted(chance.sample(others, chance.choice((1, 1, 2, 3)))))
        if said and chance.random() < 0.08:
            said = (chance.choice(refusing), *said)
        pods = chance.choice((1, 1, 1, 2, 4, 8))
        found.append(
            AuditedWorkload(
                api_version=version,
                kind=kind,
                namespace=chance.choice(TEAMS[team]),
                name=f"{chance.choice(NAMES)}-{place:04d}",
                uid=f"uid-{place}",
                team=team,
                queue=chance.choice(("", "research", "production")),
                pods=pods,
                devices=(("nvidia.com/gpu", pods * chance.choice((1, 1, 2, 4, 8))),),
                items=tuple(sorted((item(one) for one in said), key=lambda one: (one.rule, one.path, one.reason))),
                in_git=chance.random() < 0.5,
            )
        )
    return tuple(sorted(found, key=lambda one: one.key))


def nodes(
    count: int, prefix: str, devices: int, memory: int, cpu: int, *, stranding: float, seed: int = 1
) -> tuple[NodeSummary, ...]:
    chance = random.Random(f"{prefix}{seed}")  # noqa: S311 - no secret
    found: list[NodeSummary] = []
    for place in range(count):
        held = chance.choice([devices] * 4 + list(range(devices + 1)))
        stuck = chance.random() < stranding
        stranded = (devices - held) if stuck else 0
        requested = int(memory * (0.97 if stuck else min(0.9, 0.05 + 0.85 * held / max(devices, 1))))
        limited = int(requested * chance.choice((1.0, 1.1, 1.4)))
        used = int(cpu * min(0.95, 0.1 + 0.8 * held / max(devices, 1)))
        found.append(NodeSummary(f"{prefix}-{place + 1:02d}", devices, held, stranded, memory, requested, limited, cpu, used))
    return tuple(found)


def exempt(workloads: Sequence[AuditedWorkload]) -> tuple[AuditedWorkload, ...]:
    """``workloads`` with four exemptions among them, one of each state."""
    pleas = (
        Exemption(
            ("stranding",),
            "Inference of one large model per node; ends with the new nodes (INFRA-2213)",
            "d.okafor",
            "2026-03-06T00:00:00Z",
            "active",
        ),
        Exemption(
            ("numa", "shared-memory"), "vendor image that sizes /dev/shm itself", "m.lindqvist", "2026-09-30T00:00:00Z", "active"
        ),
        Exemption(("*",), "load test over the weekend", "", "2026-02-16T00:00:00Z", "expired"),
        Exemption(("gang",), "", "a.singh", "", "refused"),
    )
    found = list(workloads)
    step = max(1, len(found) // len(pleas))
    for place, plea in enumerate(pleas):
        one = found[place * step]
        items = one.items
        if plea.state == "active":
            rule = plea.rules[0]
            said = Item(
                rule,
                "gpu-default@7",
                MODES[rule],
                Effect.EXEMPT,
                "Exempt",
                "metadata.annotations[gpugate.io/exempt]",
                f"exempt from {rule}: {plea.reason}",
                "Remove gpugate.io/exempt when the reason no longer applies.",
            )
            items = tuple(sorted((*(one for one in items if one.rule != rule), said), key=lambda one: (one.rule, one.path)))
        found[place * step] = AuditedWorkload(
            one.api_version,
            one.kind,
            one.namespace,
            one.name,
            one.uid,
            one.team,
            one.queue,
            one.pods,
            one.devices,
            items,
            plea,
            one.in_git,
        )
    return tuple(found)


def gangs() -> tuple[GangState, ...]:
    return (
        GangState("llm-eval", "Job", "eval-nightly-0301", "g3", "", 4, 4, 0, 0, 0, 32, "running", 1772413200.0, ""),
        GangState(
            "llm-pretrain",
            "PyTorchJob",
            "pretrain-7b-0007",
            "g1",
            "coscheduling",
            16,
            14,
            1,
            1,
            0,
            112,
            "stuck",
            STUCK_SINCE,
            "1 member is pending for 4 h 20 min: no node has 8 GPUs and 1800Gi of memory free; 1 member was never made: the quota of"
            " namespace llm-pretrain is used up (requests.memory 30Ti of 30Ti)",
        ),
        GangState(
            "recsys-exp",
            "RayJob",
            "ranker-sweep",
            "g4",
            "",
            8,
            0,
            0,
            8,
            0,
            0,
            "queued",
            1772440000.0,
            "waits in ClusterQueue research behind 3 others",
        ),
        GangState(
            "speech",
            "Pod",
            "asr-train",
            "",
            "volcano",
            4,
            2,
            2,
            0,
            0,
            16,
            "stuck",
            1772431000.0,
            "2 members are pending for 3 h 33 min: 16 GPUs are free, no node has 8 of them",
        ),
        GangState("vision-train", "Job", "ocr-sweep", "g5", "", 8, 5, 3, 0, 0, 20, "starting", 1772443500.0, "images are pulled"),
        GangState("vision-train", "Job", "segment", "g6", "", 2, 2, 0, 0, 0, 16, "running", 1772360000.0, ""),
        GangState("recsys-prod", "JobSet", "retrain", "g7", "", 6, 0, 0, 0, 0, 0, "done", None, ""),
    )


def owned(found: tuple[AuditedWorkload, ...]) -> tuple[AuditedWorkload, ...]:
    """``found``, told who they belong to and since when and until when they run, or not."""
    told = []
    for place, one in enumerate(found):
        since = None if place % 7 == 0 else round(STUCK_SINCE) - 3600 * place
        until = None if place % 3 else one.accelerators * 86_400
        belongs = [("owner", one.team)] * bool(one.team) + [("project", f"p{place % 5}")] * bool(place % 4)
        told.append(dataclasses.replace(one, belongs=tuple(belongs), runs=(Run(one.accelerators, since, until),)))
    return tuple(told)


def queues() -> tuple[QueueLine, ...]:
    return (
        QueueLine("production", "gpu", "h100", "cpu", 768_000, 412_500, 0, ""),
        QueueLine("production", "gpu", "h100", "memory", 8000 * GIB, 5000 * GIB, 0, ""),
        QueueLine("production", "gpu", "h100", "nvidia.com/gpu", 64, 40, 0, ""),
        QueueLine("research", "gpu", "a100", "nvidia.com/gpu", 64, 80, 7, ""),
        QueueLine("research", "gpu", "h100", "cpu", 1_536_000, 1_536_000, 7, ""),
        QueueLine("research", "gpu", "h100", "nvidia.com/gpu", 128, 126, 7, ""),
        QueueLine("sandbox", "", "l4", "nvidia.com/gpu", 16, 0, 2, "stopPolicy is Hold: it admits nothing"),
    )


def quotas() -> tuple[QuotaSummary, ...]:
    return (
        QuotaSummary("llm-pretrain", "compute", "requests.memory", 30 * 1024 * GIB, 30 * 1024 * GIB),
        QuotaSummary("llm-pretrain", "compute", "requests.nvidia.com/gpu", 192, 176),
        QuotaSummary("notebooks", "small", "limits.cpu", 96_000, 31_500),
        QuotaSummary("notebooks", "small", "requests.nvidia.com/gpu", 8, 3),
    )


def policies() -> tuple[PolicyLine, ...]:
    modes = tuple(sorted((rule, mode.value) for rule, mode in MODES.items()))
    return (
        PolicyLine(
            "notebooks",
            3,
            100,
            (("host-memory", "DryRun"), ("numa", "Disabled"), ("stranding", "Mutate")),
            "spec.rules.stranding.maxFactor: 0.2 is below 1: generation 2 stays in force",
        ),
        PolicyLine("gpu-default", 7, 0, modes, ""),
    )


def shapes() -> tuple[ShapeSummary, ...]:
    return (
        ShapeSummary(
            "H100 80GB",
            "nvidia.com/gpu",
            nodes(24, "gpu-h100", 8, 2015 * GIB, 192_000, stranding=0.2),
            "4 nodes have promised 97 % of their memory: the least that a pod with one GPU asks for here is 200Gi, and at most 60Gi is left",
        ),
        ShapeSummary("A100 40GB", "nvidia.com/gpu", nodes(16, "gpu-a100", 8, 1007 * GIB, 96_000, stranding=0.0), ""),
        ShapeSummary(
            "L4",
            "nvidia.com/gpu",
            nodes(12, "gpu-l4", 4, 384 * GIB, 48_000, stranding=0.15),
            "CPU is promised on 2 nodes: 3 of 48 cores are left",
        ),
    )


def device(at: int, state: str, peak: float | None, average: float | None, *, pod: str = "", **fields: Any) -> DeviceUse:
    """One of the GPUs of a few nodes."""
    held = {"idle": (peak, peak and peak / 3), "low": (80.0, 30.0)}.get(state, (peak, average))
    spans = () if peak is None else (Span(3600, *held), Span(2_592_000, max(held[0] or 0, peak), average))
    health = Health(86_400, 0, 0, 0, 0, 0, throttled=False, linked=state == "busy")
    start = {"container": "main", "uuid": f"GPU-{at}", "model": "NVIDIA H100 80GB HBM3", "memory": 80 * GIB, "health": health}
    figures = {"memory_peak": (4 + 7 * at % 60) * GIB, "power": 90.0 + 50 * at % 500, "temperature": 34.0 + 3 * at % 40}
    return DeviceUse(
        **{"namespace": "", "pod": pod, "node": f"gpu-h100-{at // 8:02d}", "number": str(at % 8), **start, **figures, **fields},
        spans=spans,
        held=2_592_000,
    )


def watched(found: Sequence[AuditedWorkload]) -> tuple[AuditedWorkload, ...]:
    """``found`` with what monitoring told of the devices of some of them."""
    states = (("idle", 3.0, 2.0), ("low", 88.0, 31.0), ("busy", 99.0, 82.0), ("busy", 97.0, 64.0), ("young", 0.0, 0.0))
    bad = Health(86_400, 12, 2, 1840, 0, 63, throttled=True, linked=True)
    sliced = {"profile": "1g.10gb", "slice": "9", "memory": 9 * GIB, "memory_peak": 3 * GIB}
    told: list[AuditedWorkload] = []
    for place, one in enumerate(found):
        at = place // 8 if place % 8 == 0 else 1000
        state, peak, average = states[at % len(states)]
        fields = {"health": bad} if at == 7 else sliced if at == 5 else {}
        held = device(at, state, peak, average, pod=f"{one.name}-{at}", namespace=one.namespace, **fields)
        told.append(dataclasses.replace(one, used=(Used(held, state),)) if at < 40 else one)
    return tuple(told)


def fleet() -> Fleet:
    """What no workload holds."""
    strays = (device(40, "free", 0.0, 0.0), device(41, "free", None, None), device(42, "stray", 55.0, 40.0, pod="left-behind"))
    return Fleet(AT, (3600, 2_592_000), strays)


def realistic(count: int = 341) -> Audit:
    """What a platform team sees a week after it switched gpugate on."""
    return Audit(
        at=AT,
        source="cluster prod-eu-1",
        policies=policies(),
        workloads=watched(owned(exempt(workloads(count)))),
        fleet=fleet(),
        shapes=shapes(),
        gangs=gangs(),
        queues=queues(),
        quotas=quotas(),
        remarks=("NodeResourceTopologies are not served here, so NUMA zones were not looked at",),
    )


def enforced(count: int = 60) -> Audit:
    """The same after every rule has been enforced."""
    modes = tuple(sorted((rule, "Enforce") for rule in MODES))
    found = tuple(
        dataclasses.replace(one, items=tuple(said._replace(mode=Mode.ENFORCE) for said in one.items)) for one in workloads(count)
    )
    return dataclasses.replace(realistic(), policies=(PolicyLine("gpu-default", 8, 0, modes, ""),), workloads=found)


def empty() -> Audit:
    return Audit(at=AT, source="examples/empty", policies=(), workloads=())


#: What nobody should name a workload, and somebody will.
HOSTILE = "<script>alert(1)</script>\"'`{{7*7}}</style></details>&amp;\u202egpj.exe\u2066\x00\x1b[31m\ud800"


def hostile() -> Audit:
    """Every text of it tries to be more than text, and some are very long."""
    bad, long = HOSTILE, HOSTILE + "A" * 10_000
    plea = Exemption((bad, "*"), long, bad, bad, bad)
    said = tuple(Item(bad, bad, mode, effect, bad, bad, long, long) for effect in Effect for mode in (Mode.DRY_RUN, Mode.ENFORCE))
    card = DeviceUse(bad, bad, bad, bad, bad, bad, long, bad, bad, bad, spans=(Span(60, 1e300, -1.0),), memory_peak=3, power=1e300)
    one = AuditedWorkload(
        bad,
        bad,
        bad,
        bad,
        bad,
        bad,
        bad,
        3,
        ((bad, 3),),
        said,
        plea,
        in_git=True,
        belongs=((bad, long),),
        used=(Used(card, "idle"),),
        runs=(Run(3, 1 << 62, -1),),
    )
    node = NodeSummary(bad, 8, 9, 3, 0, 5, 6, 0, 7)
    return Audit(
        at=bad,
        source=long,
        policies=(PolicyLine(bad, 1, -1, ((bad, bad),), long),),
        workloads=(one,),
        shapes=(ShapeSummary(bad, bad, (node,), long),),
        gangs=(GangState(bad, bad, bad, bad, bad, 3, 1, 1, 1, 0, 1, bad, 1e300, long),),
        queues=(QueueLine(bad, bad, bad, bad, 0, 3, 1, long),),
        quotas=(QuotaSummary(bad, bad, bad, 0, 0),),
        remarks=(long,),
        fleet=Fleet(bad, (60,), (card,)),
    )


def large(count: int = 10_000) -> Audit:
    """``count`` workloads in 200 namespaces with two findings each, every third refused."""
    found = []
    for place in range(count):
        first = item((0, 1, 5)[place % 3])
        second = item((6, 7, 8)[place % 3])
        found.append(
            workload(
                f"training-run-{place:05d}",
                first,
                second,
                namespace=f"team-{place % 200:03d}",
                team=f"team-{place % 40:02d}",
                devices=1 + place % 8,
            )
        )
    return Audit(
        at=AT,
        source="cluster prod-eu-1",
        policies=policies(),
        workloads=tuple(sorted(found, key=lambda one: one.key)),
        shapes=shapes(),
    )


def many_nodes(count: int = 500) -> Audit:
    return Audit(
        at=AT,
        source="cluster prod-us-2",
        policies=policies(),
        workloads=workloads(40),
        shapes=(
            ShapeSummary(
                "H100 80GB",
                "nvidia.com/gpu",
                nodes(count, "gpu-h100", 8, 2015 * GIB, 192_000, stranding=0.12),
                "memory is promised: at most 60Gi is left beside the free GPUs",
            ),
            ShapeSummary("GB200", "nvidia.com/gpu", nodes(5, "gb200", 4, 960 * GIB, 144_000, stranding=0.4), "memory is promised"),
        ),
    )
