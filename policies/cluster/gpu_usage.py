"""GPU utilisation of pods: plain records, idle and oversized devices, and the smallest sufficient part of a card.

The records come from Prometheus, which only an audit queries. Utilisation is in percent of the device that a pod holds: of the
whole card, or of its MIG slice.
"""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from gpugate.policies.cluster.records.common import frozen
from gpugate.policies.kube.accelerators import Slice, card_of, part_of, slices_of
from gpugate.policies.workloads.kinds import WorkloadKind

Place: TypeAlias = tuple[str, str, str, str]
"""API group, kind, namespace and name of a workload."""


class _Placed(Protocol):
    """An object with namespace, kind and name."""

    @property
    def kind(self) -> WorkloadKind:
        """Its kind."""

    @property
    def namespace(self) -> str:
        """Its namespace."""

    @property
    def name(self) -> str:
        """Its name."""


def place_of(one: _Placed) -> Place:
    """Return the sort key of a workload: namespace, kind and name."""
    return (one.kind.group, one.kind.kind, one.namespace, one.name)


_NOWHERE: Final[Mapping[Any, Any]] = frozen({})
#: Peak utilisation in percent below which a device did nothing.
_NOTHING: Final = 1.0
#: Maximum number of pods that share a card in a hint.
_MOST_SHARES: Final = 10


class Span(NamedTuple):
    """Utilisation of one device over a time that ends now, or over the part of it in which the pod held the device.

    Attributes:
        seconds: length of that time.
        peak: the highest utilisation; None if unknown.
        average: the average utilisation; None if unknown.
    """

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
        return any(one is not None for one in self[1:])

    @property
    def signs(self) -> tuple[str, ...]:
        """Problems in words, the gravest first."""
        signs_found = []
        if self.xid:
            signs_found.append(f"last Xid {self.xid}")
        for count, one, many in (
            (self.double_bit, "double-bit ECC error", "double-bit ECC errors"),
            (self.link_errors, "NVLink error", "NVLink errors"),
            (self.replays, "PCIe replay", "PCIe replays"),
            (self.single_bit, "corrected ECC error", "corrected ECC errors"),
        ):
            if count:
                signs_found.append(f"{count} {one if count == 1 else many}")
        if self.throttled:
            signs_found.append("throttled by heat")
        return tuple(signs_found)


class DeviceUse(NamedTuple):
    """Utilisation of one device (card or MIG slice) by the pod that holds it. Memory is in bytes.

    Attributes:
        namespace: the pod's namespace; empty if no pod holds the device.
        pod: the pod's name.
        container: the container's name.
        node: the node.
        number: the card's number there.
        uuid: the card's UUID.
        model: the card's model.
        slice: the number of the MIG slice; empty for a whole card.
        profile: the profile of the slice.
        share: replica of a card that several pods share; empty if it is not shared, or unknown.
        held: seconds that the pod has held it at least, of the queried times.
        now: utilisation now.
        spans: utilisation over the queried times, shortest first.
        memory: memory of the device.
        memory_used: memory used now.
        memory_peak: maximum over the longest time.
        power: average power over the shortest time, in watts.
        temperature: highest temperature over the shortest time, in degrees Celsius.
        health: signs of the card's health.
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
    """Times to query, in seconds, each sorted.

    Attributes:
        windows: times over which utilisation is needed.
        ages: times for which it must be known whether a pod held its device as long.
    """

    windows: tuple[int, ...]
    ages: tuple[int, ...]


def times_of(bounds: Iterable[IdleBounds]) -> Times:
    """Return the times to query for all ``bounds``."""
    every = list(bounds)
    windows = {seconds for bound in every for seconds in (bound.idle_for, bound.average_over)}
    ages = {seconds for bound in every for seconds in (bound.idle_for, bound.average_from, bound.average_over, bound.younger)}
    return Times(tuple(sorted(windows)), tuple(sorted(ages)))


@dataclass(frozen=True, slots=True)
class Usage:
    """Utilisation of the devices that workloads hold.

    Attributes:
        workloads: the devices of the pods of each workload that an audit judges, sorted.
    """

    workloads: Mapping[Place, tuple[DeviceUse, ...]] = field(default_factory=lambda: _NOWHERE)

    def of(self, place: Place) -> tuple[DeviceUse, ...]:
        """Return the devices that the pods of one workload hold."""
        return self.workloads.get(place, ())


class Peak(NamedTuple):
    """Needs of the most demanding of some equal devices, over the longest known time.

    Attributes:
        seconds: length of that time.
        utilisation: the highest, in percent of a whole card.
        average: the highest average, in percent of a whole card.
        memory: maximum memory used, in bytes; None if unknown.
        card: the model of the card.
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
    longest = [one.spans[-1] for one in devices if one.spans]
    if not longest or len(longest) < len(devices):
        return None
    peaks, averages = [one.peak for one in longest], [one.average for one in longest]
    if None in peaks or None in averages:
        return None
    used = [one.memory_peak for one in devices]
    sizes = [one.memory for one in devices if one.memory and not one.profile]
    largest = max(devices, key=lambda one: (one.memory_peak or 0, one.part))
    return Peak(
        longest[0].seconds,
        max((peak or 0.0) * one.part for peak, one in zip(peaks, devices, strict=True)),
        max((average or 0.0) * one.part for average, one in zip(averages, devices, strict=True)),
        None if None in used else max(one or 0 for one in used),
        largest.model,
        min(sizes) if sizes else card_of(largest.profile, largest.model),
        max(one.part for one in devices),
        all(one.held >= longest[0].seconds for one in devices),
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
    if peak.utilisation < _NOTHING:
        return Hint("nothing")
    if peak.memory is None or peak.size is None:
        return Hint("unknown")
    for mig_slice in slices_of(peak.card, peak.size):
        if (
            mig_slice.memory >= peak.memory
            and float(mig_slice.compute) * 100 >= peak.utilisation
            and float(mig_slice.compute) < peak.part
        ):
            return Hint("slice", slice=mig_slice)
    if peak.part < 1:  # a slice is shared with nobody
        return Hint("whole")
    room = peak.size // max(peak.memory, 1)
    turns = math.floor(100 / peak.average) if peak.average > 0 else _MOST_SHARES
    shares = min(room, turns, _MOST_SHARES)
    return Hint("shares", shares=shares) if shares > 1 else Hint("whole")


def enough_cards(devices: Sequence[DeviceUse]) -> int | None:
    """Return how many fully used cards would do the average work of ``devices``; None if unknown.

    Their memory must hold the sum of the peaks, too.
    """
    averages = [device.spans[-1].average for device in devices if device.spans]
    if len(averages) < len(devices) or None in averages or not devices or any(device.profile for device in devices):
        return None
    work = math.ceil(sum(average or 0.0 for average in averages) / 100)
    sizes = [device.memory for device in devices]
    peaks = [device.memory_peak for device in devices]
    if None in sizes or None in peaks:
        return None
    memory = math.ceil(sum(peak or 0 for peak in peaks) / max(1, min(size or 0 for size in sizes)))
    return max(1, work, memory)
