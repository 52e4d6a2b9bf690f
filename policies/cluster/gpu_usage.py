"""What pods make of the accelerators that they hold: plain records, the judgement on them, and what would have been enough.

The records are read from monitoring, which only an audit asks. Utilisation is in percent of the device that a pod holds: of the
whole card, or of its MIG slice.
"""

from __future__ import annotations

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
    """Something in a namespace, of a kind."""

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
    """Where a workload, or whatever stands for one, is among all others."""
    return (one.kind.group, one.kind.kind, one.namespace, one.name)


_NOWHERE: Final[Mapping[Any, Any]] = frozen({})
#: Below this utilisation, in percent, at its peak a device did nothing at all.
_NOTHING: Final = 1.0
#: Pods that share a card at the most in a hint.
_MOST_SHARES: Final = 10


class Span(NamedTuple):
    """Figures of one device over the time that ends now, or over the part of it in which the pod had the device.

    Attributes:
        seconds: how long that time is.
        peak: the highest utilisation; None where it is not known.
        average: the average utilisation; None where it is not known.
    """

    seconds: int
    peak: float | None
    average: float | None


class Health(NamedTuple):
    """Signs of a card's health; None for what is not known.

    Attributes:
        seconds: over how long the counters were looked at.
        single_bit: ECC errors that were corrected in that time.
        double_bit: ECC errors that could not be.
        replays: PCIe packets sent again: cabling and slots.
        link_errors: NVLink errors (CRC, replay, recovery).
        xid: the driver's last Xid error; 0 for none.
        throttled: whether its clocks were lowered for heat, now or in that time.
        linked: whether anything went over NVLink in that time.
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
        """Whether anything is known of it."""
        return any(one is not None for one in self[1:])

    @property
    def signs(self) -> tuple[str, ...]:
        """What somebody should look at, in words, the gravest first."""
        found = []
        if self.xid:
            found.append(f"last Xid {self.xid}")
        for count, one, many in (
            (self.double_bit, "double-bit ECC error", "double-bit ECC errors"),
            (self.link_errors, "NVLink error", "NVLink errors"),
            (self.replays, "PCIe replay", "PCIe replays"),
            (self.single_bit, "corrected ECC error", "corrected ECC errors"),
        ):
            if count:
                found.append(f"{count} {one if count == 1 else many}")
        if self.throttled:
            found.append("throttled by heat")
        return tuple(found)


class DeviceUse(NamedTuple):
    """One device, a card or a MIG slice of one, and what the pod that holds it made of it. Amounts of memory are bytes.

    Attributes:
        namespace: the pod's namespace; empty where nobody holds the device.
        pod: the pod's name.
        container: the container's name.
        node: the node.
        number: the card's number there.
        uuid: the card's UUID.
        model: the card's model.
        slice: the number of the MIG slice; empty for a whole card.
        profile: the profile of the slice.
        share: which share of a card that several pods have at once; empty where it is one pod's alone, or is not told.
        held: for how many seconds at least the pod has had it, of the times that were asked for.
        now: utilisation now.
        spans: figures over the times that were asked for, the shortest first.
        memory: memory of the device.
        memory_used: what of it is used now.
        memory_peak: the most that was used over the longest time.
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
        """The figures over so many seconds; None where they were not asked for."""
        return next((one for one in self.spans if one.seconds == seconds), None)

    @property
    def part(self) -> float:
        """What part of a card's compute the device has."""
        return float(part_of(self.profile, self.model)) if self.profile else 1.0

    @property
    def place(self) -> str:
        """Which device it is, in words: ``gpu-1 GPU 3 (1g.10gb)``."""
        card = f"GPU {self.number or '?'}"
        return " ".join(word for word in (self.node, card, f"({self.profile})" if self.profile else "") if word)


class IdleBounds(NamedTuple):
    """When a held device counts as idle, or as too large for what is done with it. Utilisation in percent, times in seconds.

    Attributes:
        below: a device whose utilisation never reached this ...
        idle_for: ... in so long is idle.
        average_below: one whose utilisation averaged less than this ...
        average_over: ... over so long is too large.
        average_from: for how long it must have been held before its average is judged.
        younger: held for less than this, it is not judged at all.
    """

    below: float
    idle_for: int
    average_below: float
    average_over: int
    average_from: int
    younger: int


class DeviceState(enum.Enum):
    """What becomes of a held device."""

    IDLE = "idle"
    LOW = "low"
    BUSY = "busy"
    YOUNG = "young"
    UNKNOWN = "unknown"


def state_of(device: DeviceUse, bounds: IdleBounds) -> DeviceState:
    """Whether ``device`` is idle or too large by ``bounds``; unknown where monitoring has no figures over their times."""
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
    """What monitoring is asked for, in seconds, each sorted.

    Attributes:
        windows: times over which utilisation is wanted.
        ages: times for which it is wanted whether a pod has held its device as long.
    """

    windows: tuple[int, ...]
    ages: tuple[int, ...]


def times_of(bounds: Iterable[IdleBounds]) -> Times:
    """What must be known to judge by every one of ``bounds``."""
    every = list(bounds)
    windows = {seconds for one in every for seconds in (one.idle_for, one.average_over)}
    ages = {seconds for one in every for seconds in (one.idle_for, one.average_from, one.average_over, one.younger)}
    return Times(tuple(sorted(windows)), tuple(sorted(ages)))


@dataclass(frozen=True, slots=True)
class Usage:
    """What is known of the devices that workloads hold.

    Attributes:
        workloads: the devices of the pods of each workload that an audit judges, sorted.
    """

    workloads: Mapping[Place, tuple[DeviceUse, ...]] = field(default_factory=lambda: _NOWHERE)

    def of(self, place: Place) -> tuple[DeviceUse, ...]:
        """The devices that the pods of one workload hold."""
        return self.workloads.get(place, ())


class Peak(NamedTuple):
    """What the most demanding of some alike devices needed, over the longest time that is known.

    Attributes:
        seconds: how long that is.
        utilisation: the highest, in percent of a whole card.
        average: the highest average, likewise.
        memory: the most memory that was used, bytes; None where it is not known.
        card: the model of the card.
        size: memory of a whole card, bytes; None where it is not known.
        part: what part of a card the devices are.
        whole: whether the pods have held them for all of that time.
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
    """What the most demanding of ``devices`` needed; None where the peak of one of them is not known."""
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
    """What would have been enough.

    Attributes:
        kind: ``nothing`` (it did nothing), ``slice``, ``shares``, ``whole`` (no part would have held it) or ``unknown``.
        slice: the MIG slice that would have held the peak.
        shares: how many such pods could share one card in turn.
    """

    kind: str
    slice: Slice | None = None
    shares: int = 0


def hint_of(peak: Peak | None) -> Hint:
    """The smallest part of a card that would have held ``peak``, of memory and of compute."""
    if peak is None:
        return Hint("unknown")
    if peak.utilisation < _NOTHING:
        return Hint("nothing")
    if peak.memory is None or peak.size is None:
        return Hint("unknown")
    for one in slices_of(peak.card, peak.size):
        if one.memory >= peak.memory and float(one.compute) * 100 >= peak.utilisation and float(one.compute) < peak.part:
            return Hint("slice", slice=one)
    if peak.part < 1:  # a slice is shared with nobody
        return Hint("whole")
    room = peak.size // max(peak.memory, 1)
    turns = math.floor(100 / peak.average) if peak.average > 0 else _MOST_SHARES
    shares = min(room, turns, _MOST_SHARES)
    return Hint("shares", shares=shares) if shares > 1 else Hint("whole")


def enough_cards(devices: Sequence[DeviceUse]) -> int | None:
    """How many whole cards would do what ``devices`` did on average, each fully used; None where that is not known.

    Their memory must hold the peaks together, too.
    """
    averages = [one.spans[-1].average for one in devices if one.spans]
    if len(averages) < len(devices) or None in averages or not devices or any(one.profile for one in devices):
        return None
    work = math.ceil(sum(one or 0.0 for one in averages) / 100)
    sizes = [one.memory for one in devices]
    peaks = [one.memory_peak for one in devices]
    if None in sizes or None in peaks:
        return None
    memory = math.ceil(sum(one or 0 for one in peaks) / max(1, min(one or 0 for one in sizes)))
    return max(1, work, memory)
