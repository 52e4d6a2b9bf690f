"""The state of every gang: whether its members are there and run."""

from __future__ import annotations

from typing import NamedTuple


class GangState(NamedTuple):
    """One gang and its members.

    Attributes:
        namespace: its namespace.
        kind: the kind of its owner; ``Pod`` for plain pods in a group.
        name: the name of the owner, or of the group.
        uid: the owner's uid; empty for plain pods.
        system: who holds it together, as in :class:`gpugate.policies.records.groups.GroupKey`; empty for its owner alone.
        size: how many members it is to have.
        running: members that run.
        pending: members that are there and do not run.
        missing: members that are not there.
        failed: members that have failed.
        held: accelerators that its running members hold.
        state: ``running``, ``queued``, ``starting``, ``stuck`` or ``done``.
        since: when it came into this state, seconds since the epoch; None where that is not known.
        reason: why it is stuck or waits, in words; empty otherwise.
    """

    namespace: str
    kind: str
    name: str
    uid: str
    system: str
    size: int
    running: int
    pending: int
    missing: int
    failed: int
    held: int
    state: str
    since: float | None
    reason: str
