"""The state that reviews decide from: one snapshot with its policies, swapped as a whole."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpugate.policies.cluster.snapshot import EMPTY_SNAPSHOT, ClusterSnapshot
from gpugate.policies.findings import Mode
from gpugate.policies.policy.binding import PolicySet
from gpugate.policies.policy.models import Policy, default_policy
from gpugate.webhook.cache.policies import SeenPolicy
from gpugate.webhook.kube.types import KindState


class InForce(NamedTuple):
    """A snapshot and the policies for one review."""

    snapshot: ClusterSnapshot
    policies: PolicySet


class CurrentState:
    """The current snapshot and policies; a review reads them once.

    Attributes:
        draining: whether the server is shutting down and accepts no new connections.
        watched: returns the current state of every watched kind.
        certificate: returns why the serving certificate is unusable; empty if it is usable.
    """

    __slots__ = ("_pending", "certificate", "draining", "in_force", "policies", "watched")

    def __init__(self, snapshot: ClusterSnapshot = EMPTY_SNAPSHOT, policies: Sequence[Policy] = ()) -> None:
        self.in_force = InForce(snapshot, PolicySet(policies or [default_policy(Mode.DRY_RUN)]))
        self.draining = False
        self.watched: Callable[[], Sequence[KindState]] = tuple
        self.policies: Callable[[], Sequence[SeenPolicy]] = tuple
        self.certificate: Callable[[], str] = str
        self._pending: tuple[str, ...] = ()

    def publish(self, snapshot: ClusterSnapshot | None = None, policies: Sequence[Policy] | None = None) -> None:
        """Put a new snapshot or new policies in force; without any policy the default holds, in DryRun."""
        now = self.in_force
        self.in_force = InForce(
            now.snapshot if snapshot is None else snapshot,
            now.policies if policies is None else PolicySet(policies or [default_policy(Mode.DRY_RUN)]),
        )

    def wait_for(self, pending: Sequence[str]) -> None:
        """Set the kinds that have not been synced yet; empty means ready."""
        self._pending = tuple(sorted(pending))

    @property
    def not_ready(self) -> str:
        """Return why the server is not ready; empty if it is ready."""
        if self.draining:
            return "shutting down"
        unusable = self.certificate()
        if unusable or not self._pending:
            return unusable
        phases = {state.resource: state.phase for state in self.watched()}
        failing = {name: phases[name] for name in self._pending if phases.get(name) in {"failing", "forbidden"}}
        names = [f"{name} ({failing[name]})" if name in failing else name for name in self._pending]
        remedy = "; gpugate's ClusterRole must allow get, list and watch" if "forbidden" in failing.values() else ""
        return f"not synced yet: {', '.join(names)}{remedy}"
