"""GPU utilisation of pods: plain records, idle and oversized devices, and the smallest sufficient part of a card.

The records come from Prometheus, which only an audit queries. Utilisation is in percent of the device that a pod holds: of the
whole card, or of its MIG slice.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from gpugate.policies.cluster.records.common import frozen
from gpugate.policies.kube.accelerators import Slice, card_of, part_of, slices_of
from gpugate.policies.workloads.kinds import WorkloadKind

Place: TypeAlias = tuple[str, str, str, str]
"""API group, kind, namespace and name of a workload."""


class _Workload(Protocol):
    @property
    def kind(self) -> WorkloadKind: ...

    @property
    def namespace(self) -> str: ...

    @property
    def name(self) -> str: ...


def place_of(workload: _Workload) -> Place:
    """Return API group, kind, namespace and name of a workload."""
    return (workload.kind.group, workload.kind.kind, workload.namespace, workload.name)


#: Peak utilisation in percent below which a device did nothing.
_UNUSED: Final = 1.0
#: Maximum number of pods that share a card in a hint.
_MOST_SHARES: Final = 10


class Span(NamedTuple):
    """Utilisation of a device over the last ``seconds``, or the part of them in which the pod held it; None if unknown."""

    seconds: int
    peak: float | None
    average: float | None


class Health(NamedTuple):
    """Health of a card; None for unknown values.

    Attributes:
        seconds: time over which the counters are taken.
        single_bit: corrected ECC errors.
        double_bit: uncorrected ECC errors.
        replays: PCIe replays (cabling and slots).
        link_errors: NVLink errors (CRC, replay, recovery).
        xid: the driver's last Xid error; 0 for none.
        throttled: True if its clocks were lowered for heat, now or in that time.
        linked: True if NVLink carried traffic in that time.
    """

    seconds: int = 0
    single_bit: int | None = None
    double_bit: int | None = None
    replays: int | None = None
    link_errors: int | None = None
    xid: int | None = None
    throttled: bool | None = None
    linked: bool | None = None

    @property
    def known(self) -> bool:
        """True if any value is known."""
        return any(value is not None for value in self[1:])

    @property
    def signs(self) -> tuple[str, ...]:
        """Problems in words, the gravest first."""
        counters = (
            (self.double_bit, "double-bit ECC error"),
            (self.link_errors, "NVLink error"),
            (self.replays, "PCIe replay"),
            (self.single_bit, "corrected ECC error"),
        )
        signs = [f"last Xid {self.xid}"] if self.xid else []
        signs += [f"{count} {name}{'' if count == 1 else 's'}" for count, name in counters if count]
        return (*signs, "throttled by heat") if self.throttled else tuple(signs)


class DeviceUse(NamedTuple):
    """Utilisation of one device (card or MIG slice) by the pod that holds it. Memory is in bytes.

    Attributes:
        namespace: the pod's namespace; empty if no pod holds the device.
        number: the card's number on the node.
        slice: the number of the MIG slice; empty for a whole card.
        profile: the profile of the slice.
        share: replica of a card that several pods share; empty if it is not shared, or unknown.
        held: seconds that the pod has held it at least, of the queried times.
        spans: utilisation over the queried times, shortest first.
        memory_used: memory used now.
        memory_peak: maximum over the longest time.
        power: average power over the shortest time, in watts.
        temperature: highest temperature over the shortest time, in degrees Celsius.
    """

    namespace: str
    pod: str
    container: str
    node: str
    number: str
    uuid: str
    model: str
    slice: str = ""
    profile: str = ""
    share: str = ""
    held: int = 0
    now: float | None = None
    spans: tuple[Span, ...] = ()
    memory: int | None = None
    memory_used: int | None = None
    memory_peak: int | None = None
    power: float | None = None
    temperature: float | None = None
    health: Health = Health()

    def span(self, seconds: int) -> Span | None:
        """Return the utilisation over so many seconds; None if it was not queried."""
        return next((span for span in self.spans if span.seconds == seconds), None)

    @property
    def part(self) -> float:
        """Fraction of a card's compute that the device has."""
        return float(part_of(self.profile, self.model)) if self.profile else 1.0

    @property
    def place(self) -> str:
        """The device in words: ``gpu-1 GPU 3 (1g.10gb)``."""
        card = f"GPU {self.number or '?'}"
        return " ".join(word for word in (self.node, card, f"({self.profile})" if self.profile else "") if word)


class IdleBounds(NamedTuple):
    """Bounds below which a held device counts as idle or oversized. Utilisation in percent, times in seconds.

    Attributes:
        below: a device whose peak utilisation stays below this ...
        idle_for: ... for this long is idle.
        average_below: a device whose average utilisation stays below this ...
        average_over: ... for this long is oversized.
        average_from: minimum time held before the average counts.
        younger: a device held for less is not judged.
    """

    below: float
    idle_for: int
    average_below: float
    average_over: int
    average_from: int
    younger: int


class DeviceState(enum.Enum):
    """State of a held device."""

    IDLE = "idle"
    LOW = "low"
    BUSY = "busy"
    YOUNG = "young"
    UNKNOWN = "unknown"


def state_of(device: DeviceUse, bounds: IdleBounds) -> DeviceState:
    """Return whether ``device`` is idle or oversized by ``bounds``; unknown without figures over their times."""
    short, long = device.span(bounds.idle_for), device.span(bounds.average_over)
    if (short is None or short.peak is None) and (long is None or long.average is None):
        return DeviceState.UNKNOWN
    if device.held < bounds.younger:
        return DeviceState.YOUNG
    if short is not None and short.peak is not None and short.peak < bounds.below and device.held >= bounds.idle_for:
        return DeviceState.IDLE
    if long is not None and long.average is not None and device.held >= bounds.average_from and long.average < bounds.average_below:
        return DeviceState.LOW
    return DeviceState.BUSY if device.held >= min(bounds.idle_for, bounds.average_from) else DeviceState.YOUNG


class Times(NamedTuple):
    """Times to query, in seconds, sorted: ``windows`` for utilisation, ``ages`` for how long a pod has held its device."""

    windows: tuple[int, ...]
    ages: tuple[int, ...]


def times_of(bounds: Iterable[IdleBounds]) -> Times:
    """Return the times to query for all ``bounds``."""
    windows, ages = set(), set()
    for bound in bounds:
        windows |= {bound.idle_for, bound.average_over}
        ages |= {bound.idle_for, bound.average_from, bound.average_over, bound.younger}
    return Times(tuple(sorted(windows)), tuple(sorted(ages)))


class Usage(NamedTuple):
    """Utilisation of the devices that the pods of each audited workload hold, sorted."""

    workloads: Mapping[Place, tuple[DeviceUse, ...]] = frozen({})

    def of(self, place: Place) -> tuple[DeviceUse, ...]:
        """Return the devices that the pods of one workload hold."""
        return self.workloads.get(place, ())


class Peak(NamedTuple):
    """Needs of the most demanding of some equal devices, over the longest known time.

    Attributes:
        utilisation: the highest, in percent of a whole card.
        average: the highest average, in percent of a whole card.
        memory: maximum memory used, in bytes; None if unknown.
        size: memory of a whole card, bytes; None if unknown.
        part: fraction of a card that each device is.
        whole: True if the pods held them for all of that time.
    """

    seconds: int
    utilisation: float
    average: float
    memory: int | None
    card: str
    size: int | None
    part: float
    whole: bool = True


def peak_of(devices: Sequence[DeviceUse]) -> Peak | None:
    """Return the needs of the most demanding of ``devices``; None if the peak of one is unknown."""
    spans = [device.spans[-1] for device in devices if device.spans]
    if not spans or len(spans) < len(devices) or any(span.peak is None or span.average is None for span in spans):
        return None
    seconds, used = spans[0].seconds, [device.memory_peak for device in devices]
    sizes = [device.memory for device in devices if device.memory and not device.profile]
    largest = max(devices, key=lambda device: (device.memory_peak or 0, device.part))
    return Peak(
        seconds,
        max((span.peak or 0.0) * device.part for span, device in zip(spans, devices, strict=True)),
        max((span.average or 0.0) * device.part for span, device in zip(spans, devices, strict=True)),
        None if None in used else max(memory or 0 for memory in used),
        largest.model,
        min(sizes) if sizes else card_of(largest.profile, largest.model),
        max(device.part for device in devices),
        all(device.held >= seconds for device in devices),
    )


class Hint(NamedTuple):
    """The smallest part of a card that would have been enough.

    Attributes:
        kind: ``nothing`` (it did nothing), ``slice``, ``shares``, ``whole`` (no part would have held it) or ``unknown``.
        slice: the MIG slice that would have held the peak.
        shares: number of such pods that could time-share one card.
    """

    kind: str
    slice: Slice | None = None
    shares: int = 0


def hint_of(peak: Peak | None) -> Hint:
    """Return the smallest part of a card with enough memory and compute for ``peak``."""
    if peak is None:
        return Hint("unknown")
    if peak.utilisation < _UNUSED:
        return Hint("nothing")
    if peak.memory is None or peak.size is None:
        return Hint("unknown")
    for mig_slice in slices_of(peak.card, peak.size):
        compute = float(mig_slice.compute)
        if mig_slice.memory >= peak.memory and compute * 100 >= peak.utilisation and compute < peak.part:
            return Hint("slice", slice=mig_slice)
    if peak.part < 1:  # pods do not share a slice
        return Hint("whole")
    by_compute = math.floor(100 / peak.average) if peak.average > 0 else _MOST_SHARES
    shares = min(peak.size // max(peak.memory, 1), by_compute, _MOST_SHARES)
    return Hint("shares", shares=shares) if shares > 1 else Hint("whole")


def enough_cards(devices: Sequence[DeviceUse]) -> int | None:
    """Return how many fully used cards do the average work of ``devices`` and hold their peak memory; None if unknown."""
    averages = [device.spans[-1].average for device in devices if device.spans]
    if len(averages) < len(devices) or None in averages or not devices or any(device.profile for device in devices):
        return None
    if any(device.memory is None or device.memory_peak is None for device in devices):
        return None
    work = math.ceil(sum(average or 0.0 for average in averages) / 100)
    smallest = max(1, min(device.memory or 0 for device in devices))
    return max(1, work, math.ceil(sum(device.memory_peak or 0 for device in devices) / smallest))
