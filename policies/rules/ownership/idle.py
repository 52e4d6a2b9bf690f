"""GPUs that a workload holds and hardly uses are listed, with the part of a card that would have been enough.

## What it does

Speaks in an audit that monitoring was given to (`gpugate audit --prometheus URL`, `gpugate controller --prometheus URL`), and
nowhere else: at admission nothing is known of what a workload will do. For each GPU or MIG slice that a pod of the workload holds:

- **idle**: in the last `idleFor` its utilisation never reached `below` percent;
- **too large**: over `averageOver`, or as long as the pod has had it, its utilisation averaged less than `averageBelow` percent.

Pods that have held their GPUs for less than `ignoreYounger` are not judged, nor are averages of less than `averageFrom`. The
utilisation is the larger of `DCGM_FI_DEV_GPU_UTIL` and `DCGM_FI_PROF_GR_ENGINE_ACTIVE`; where Prometheus has neither, nothing is
said.

The hint is worked out from the highest utilisation and the most memory used over the longest of the times: the smallest MIG
slice of that card that has as much of both; else with how many of its like the workload could share a card in turn; for several
GPUs, how many of them would have done the same work.

It refuses nothing and changes nothing, whatever its mode.

## Why

A GPU that is held and not used costs as much as one that is used, and nobody else can have it. Utilisation that stays low says
that the work waits for memory, storage or the network, that a smaller part of a card would do, or that somebody has forgotten
a notebook.

## Practice

- NUMA guide, "Monitoring GPU Workloads": GPUs whose utilisation stays below 30 % are told of.
- NUMA guide, "GPU Instance Selection: Cost vs Performance": an average below 40 % over a month means fewer GPUs, a smaller part,
  or time-slicing.
- Orchestration guide, "Idle GPU Mitigation": each team sees which of its GPUs stand idle, and shares where work is small.
- Field guide, "GPU monitoring": utilisation against allocation over the whole fleet is one figure of the audit.
- Field guide, "Fractional GPU sharing": a model that uses a small part of a card gets a hint to the MIG slice that holds it.

## Example

A notebook has held one A100 of 80 GB for days; over 30 days it reached 12 % and used 6.2Gi: "1 of 1 GPU never reached 30 % in
1h", and the hint names `nvidia.com/mig-1g.10gb`.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

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
    """How long a GPU must have stayed below that."""
    average_below: _Percent = 40.0
    """Utilisation in percent: a GPU that averaged less over `averageOver` is too large for its work."""
    average_over: Seconds = 30 * DAY
    """Over how long the average and the peaks are taken; Prometheus must keep its series as long."""
    average_from: Seconds = DAY
    """How long a GPU must have been held before its average is judged."""
    ignore_younger: Seconds = HOUR
    """Pods that have held their GPUs for less than this are not judged."""


def bounds_of(params: IdleParams) -> IdleBounds:
    """What ``params`` say of held devices."""
    return IdleBounds(
        params.below, params.idle_for, params.average_below, params.average_over, params.average_from, params.ignore_younger
    )


def check(workload: Workload, params: IdleParams, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    """Tell of the devices that the workload's pods hold and do not use."""
    if snapshot.usage is None:
        return
    devices = snapshot.usage.of(place_of(workload))
    if not devices:
        return
    bounds = bounds_of(params)
    states = [state_of(one, bounds) for one in devices]
    idle = [one for one, state in zip(devices, states, strict=True) if state is DeviceState.IDLE]
    if idle:
        yield Finding(
            "HeldIdle",
            (),
            f"{_of(idle, devices)} never reached {bounds.below:g} % in {lasting(bounds.idle_for)}:"
            f" {_listed(idle, bounds.idle_for, 'peak')}",
            _remedy(idle, devices),
            measure=len(idle),
        )
    low = [one for one, state in zip(devices, states, strict=True) if state is DeviceState.LOW]
    if low:
        yield Finding(
            "LowAverage",
            (),
            f"{_of(low, devices)} averaged less than {bounds.average_below:g} % over {lasting(bounds.average_over)}, or as"
            f" long as they were held: {_listed(low, bounds.average_over, 'average')}",
            _remedy(low, devices),
            measure=len(low),
        )


def _of(some: Sequence[DeviceUse], devices: Sequence[DeviceUse]) -> str:
    what = "MIG slice" if all(one.profile for one in devices) else "GPU"
    return f"{len(some)} of {len(devices)} {what}{'' if len(devices) == 1 else 's'} held"


def _listed(devices: Sequence[DeviceUse], seconds: int, figure: str) -> str:
    shown = [f"{one.place} of pod {one.pod} {_percent(one, seconds, figure)}" for one in devices[:_SHOWN]]
    more = f" and {len(devices) - _SHOWN} more" if len(devices) > _SHOWN else ""
    return ", ".join(shown) + more


def _percent(device: DeviceUse, seconds: int, figure: str) -> str:
    span = device.span(seconds)
    value = None if span is None else span.peak if figure == "peak" else span.average
    return f"{value or 0.0:.0f} %"


def _remedy(devices: Sequence[DeviceUse], every: Sequence[DeviceUse]) -> str:
    """What would have been enough, as a sentence."""
    peak = peak_of(devices)
    hint = hint_of(peak)
    if peak is None or hint.kind == "unknown":
        return "See where the work waits, or ask for less: monitoring does not tell what its peak was."
    time = lasting(peak.seconds) if peak.whole else "the time since they were given"
    needed = f"the peak of {time} ({_needs(peak)})"
    fewer = enough_cards(every)
    few = f" {fewer} of the {len(every)} GPUs would have done the work of all." if fewer is not None and fewer < len(every) else ""
    if hint.kind == "nothing":
        return f"Nothing ran there in {time}: scale it to zero or delete it."
    if hint.kind == "slice" and hint.slice is not None:
        return f"nvidia.com/mig-{hint.slice.profile} would have held {needed}.{few}"
    if hint.kind == "shares":
        shared = f"{hint.shares} like it could share a card by time-slicing"
        return f"No MIG slice of {peak.card or 'that card'} would have held {needed}; {shared}.{few}"
    return f"No smaller part of a card would have held {needed}: see where the work waits.{few}"


def _needs(peak: Peak) -> str:
    memory = f", {-(-peak.memory * 10 // GIB) / 10:g}Gi" if peak.memory is not None else ""
    of = " of a card" if peak.part < 1 else ""
    return f"{peak.utilisation:.0f} %{of}{memory}"


REASONS: Final[dict[str, Reason]] = {
    "HeldIdle": Reason("A held GPU stayed below the utilisation threshold.", action="Warn"),
    "LowAverage": Reason("A held GPU averaged less than its threshold.", action="Warn"),
}

RULE = Rule(
    id="idle",
    title="GPUs that are held and hardly used are listed, with what would have been enough",
    since="0.1.0",
    params=IdleParams,
    reasons=REASONS,
    check=check,
    needs=frozenset({"usage"}),
    documentation=__doc__,
    default_max_mode=Mode.WARN,
    default_mode_reason="What counts as idle is for a team to say, and an audit that is given no monitoring says nothing.",
)
