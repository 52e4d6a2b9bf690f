"""GPUs that a workload holds and hardly uses are listed, with the part of a GPU that would have been enough.

## What it does

Reports only in an audit that reads Prometheus (`gpugate audit --prometheus URL`, `gpugate controller --prometheus URL`): at
admission the use of a workload is unknown. For each GPU or MIG slice that a pod of the workload holds:

- **idle**: in the last `idleFor` its utilisation never reached `below` percent;
- **too large**: over `averageOver`, or as long as the pod has held it, its utilisation averaged less than `averageBelow` percent.

Pods that have held their GPUs for less than `ignoreYounger` are not judged, nor are averages of less than `averageFrom`. The
utilisation is the larger of `DCGM_FI_DEV_GPU_UTIL` and `DCGM_FI_PROF_GR_ENGINE_ACTIVE`; without these the rule reports nothing.

The hint is computed from the highest utilisation and the maximum memory over the longest of the times: the smallest MIG slice
of that GPU with as much of both; or else how many such workloads could time-share a GPU; for several GPUs, how many of them
would have done the same work. The rule refuses nothing and changes nothing in any mode.

## Why

An idle GPU costs as much as a busy one, and no other workload can have it. A low utilisation means that the work waits for
memory, storage or the network, that a smaller part of a GPU would be enough, or that somebody has forgotten a notebook.

## Practice

- NUMA guide, "Monitoring GPU Workloads": GPUs whose utilisation stays below 30 % are reported.
- NUMA guide, "GPU Instance Selection: Cost vs Performance": an average below 40 % over a month means fewer GPUs, a smaller part,
  or time-slicing.
- Orchestration guide, "Idle GPU Mitigation": each team sees which of its GPUs are idle, and small workloads share.
- Field guide, "GPU monitoring": utilisation against allocation over the whole fleet is one figure of the audit.
- Field guide, "Fractional GPU sharing": a model that uses a small part of a GPU gets a hint to the MIG slice that holds it.

## Example

A notebook has held one A100 of 80 GB for days; over 30 days it reached 12 % and used 6.2Gi: "1 of 1 GPU never reached 30 % in
1h", and the hint names `nvidia.com/mig-1g.10gb`.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from gpugate.policies.cluster.gpu_usage import (
    DeviceState,
    DeviceUse,
    IdleBounds,
    Peak,
    enough_cards,
    hint_of,
    peak_of,
    place_of,
    state_of,
)
from gpugate.policies.cluster.snapshot import ClusterSnapshot
from gpugate.policies.findings import Finding, Mode
from gpugate.policies.framework.params import Params, Seconds
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.kube.quantity import GIB
from gpugate.policies.kube.times import DAY, HOUR, lasting
from gpugate.policies.workloads.workload import Workload

_SHOWN: Final = 3

#: A utilisation in percent.
_Percent = Annotated[float, Field(gt=0, le=100)]


class IdleParams(Params):
    """Parameters of `idle`."""

    below: _Percent = 30.0
    """Utilisation in percent: a GPU that never reached it in `idleFor` is idle."""
    idle_for: Seconds = HOUR
    """How long a GPU must stay below that."""
    average_below: _Percent = 40.0
    """Utilisation in percent: a GPU that averaged less over `averageOver` is too large for its work."""
    average_over: Seconds = 30 * DAY
    """The time over which the average and the peaks are taken; Prometheus must retain its series as long."""
    average_from: Seconds = DAY
    """How long a pod must hold a GPU before its average is judged."""
    ignore_younger: Seconds = HOUR
    """Pods that hold their GPUs for less than this are not judged."""


def bounds_of(params: IdleParams) -> IdleBounds:
    """Return the bounds in ``params``."""
    return IdleBounds(
        params.below, params.idle_for, params.average_below, params.average_over, params.average_from, params.ignore_younger
    )


def check(workload: Workload, params: IdleParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Yield findings for the devices that the workload's pods hold and hardly use."""
    if snapshot.usage is None:
        return
    devices = snapshot.usage.of(place_of(workload))
    bounds = bounds_of(params)
    idle = [device for device in devices if state_of(device, bounds) is DeviceState.IDLE]
    if idle:
        yield Finding(
            "HeldIdle",
            (),
            f"{_count(idle, devices)} never reached {bounds.below:g} % in {lasting(bounds.idle_for)}:"
            f" {_listed(idle, bounds.idle_for, 'peak')}",
            _remedy(idle, devices),
            measure=len(idle),
        )
    low = [device for device in devices if state_of(device, bounds) is DeviceState.LOW]
    if low:
        yield Finding(
            "LowAverage",
            (),
            f"{_count(low, devices)} averaged less than {bounds.average_below:g} % over {lasting(bounds.average_over)}, or"
            f" since they were allocated: {_listed(low, bounds.average_over, 'average')}",
            _remedy(low, devices),
            measure=len(low),
        )


def _count(some: Sequence[DeviceUse], devices: Sequence[DeviceUse]) -> str:
    device = "MIG slice" if all(device.profile for device in devices) else "GPU"
    return f"{len(some)} of {len(devices)} {device}{'' if len(devices) == 1 else 's'} held"


def _listed(devices: Sequence[DeviceUse], seconds: int, figure: Literal["peak", "average"]) -> str:
    shown = []
    for device in devices[:_SHOWN]:
        span = device.span(seconds)
        percent = (span.peak if figure == "peak" else span.average) if span else None
        shown.append(f"{device.place} of pod {device.pod} {percent or 0.0:.0f} %")
    return ", ".join(shown) + (f" and {len(devices) - _SHOWN} more" if len(devices) > _SHOWN else "")


def _remedy(devices: Sequence[DeviceUse], every: Sequence[DeviceUse]) -> str:
    peak = peak_of(devices)
    hint = hint_of(peak)
    if peak is None or hint.kind == "unknown":
        return "Find out what the work waits for, or request less: the peak is not in Prometheus."
    time = lasting(peak.seconds) if peak.whole else "the time that they have been held"
    needed = f"the peak of {time} ({_needs(peak)})"
    fewer = enough_cards(every)
    few = f" {fewer} of the {len(every)} GPUs are enough for this work." if fewer is not None and fewer < len(every) else ""
    if hint.kind == "nothing":
        return f"Scale the workload to zero or delete it: nothing ran in {time}."
    if hint.kind == "slice" and hint.slice is not None:
        return f"Request nvidia.com/mig-{hint.slice.profile}, which is enough for {needed}.{few}"
    if hint.kind == "shares":
        shared = f"Share a GPU between {hint.shares} such pods by time-slicing"
        return f"{shared}, because no MIG slice of {peak.card or 'that GPU'} is enough for {needed}.{few}"
    return f"Find out what the work waits for, because no smaller part of a GPU is enough for {needed}.{few}"


def _needs(peak: Peak) -> str:
    memory = f", {-(-peak.memory * 10 // GIB) / 10:g}Gi" if peak.memory is not None else ""
    of = " of a GPU" if peak.part < 1 else ""
    return f"{peak.utilisation:.0f} %{of}{memory}"


REASONS: Final[dict[str, Reason]] = {
    "HeldIdle": Reason("A held GPU stayed below the utilisation threshold.", action="Warn"),
    "LowAverage": Reason("A held GPU averaged less than its threshold.", action="Warn"),
}

RULE = Rule(
    id="idle",
    title="Lists GPUs that are held and hardly used, and what would have been enough",
    since="0.1.0",
    params=IdleParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"usage"}),
    documentation=__doc__,
    default_max_mode=Mode.MUTATE,
    default_mode_reason="Each team decides what counts as idle, and an audit without Prometheus reports nothing.",
)
