"""Store of the GPUPolicies of the cluster, with the generation in force of each."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.policy.models import API_VERSION, KIND, Policy, PolicyError, parse_policy, without_rules
from gpugate.webhook.cache.kinds import Observed
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log

#: The generation of an object that was never changed: it has no earlier one.
_FIRST: Final = 1


class SeenPolicy(NamedTuple):
    """A watched GPUPolicy.

    Attributes:
        name: its name.
        uid: its uid.
        generation: its newest generation.
        version: its resourceVersion.
        error: why the newest generation is invalid; empty if it is valid.
        policy: the policy in force: the newest generation, or the last valid one; None if there is none.
        left_out: invalid rules that are disabled while the other rules of the newest generation are in force.
        status: its stored status.
    """

    name: str
    uid: str
    generation: int
    version: str
    error: str
    policy: Policy | None
    left_out: tuple[str, ...]
    status: JsonObject

    @property
    def in_force(self) -> int | None:
        """Return the generation in force; None if none is."""
        return None if self.policy is None else self.policy.generation

    @property
    def outcome(self) -> str:
        """Describe what is in force of an invalid policy."""
        if self.policy is None:
            return "nothing of it is in force"
        if self.left_out:
            return f"generation {self.generation} is in force without {', '.join(self.left_out)}"
        return f"generation {self.in_force} stays in force"


class _Kept(NamedTuple):
    """A parsed policy and the spec it was parsed from."""

    seen: SeenPolicy
    spec: Any


class PolicyStore:
    """Parses GPUPolicies as they arrive. An invalid one never stops admission.

    - Its last valid generation stays in force.
    - A replica that starts later has no earlier generation. If only the settings of some rules are invalid, it disables those
      rules and puts the others in force. It never guesses the scope or the mode.
    - For a policy that was invalid from its first generation on, nothing is in force.

    Attributes:
        version: counts every change, status changes included.
    """

    def __init__(self, log: Log) -> None:
        self.version = 0
        self._log = log
        self._kept: dict[str, _Kept] = {}

    def replaced(self, objects: Sequence[Observed]) -> bool:
        """Take a full list; return whether anything but a status changed."""
        after = {one.key[1]: self._read(one) for one in objects}
        before, self._kept = self._kept, after
        self.version += 1
        return {name: _effective(one) for name, one in before.items()} != {name: _effective(one) for name, one in after.items()}

    def changed(self, observed: Observed, *, gone: bool) -> bool:
        """Take one event; return whether anything but a status changed."""
        self.version += 1
        name = observed.key[1]
        before = self._kept.get(name)
        if gone:
            return self._kept.pop(name, None) is not None
        self._kept[name] = after = self._read(observed)
        return before is None or _effective(before) != _effective(after)

    def in_force(self) -> list[Policy]:
        """Return the policies in force."""
        return [one.seen.policy for one in self._kept.values() if one.seen.policy is not None]

    def seen(self) -> list[SeenPolicy]:
        """Return every GPUPolicy, sorted by name."""
        return [self._kept[name].seen for name in sorted(self._kept)]

    def _read(self, observed: Observed) -> _Kept:
        item: JsonObject = observed.record
        metadata, spec = item["metadata"], item.get("spec")
        generation, status = metadata.get("generation"), item.get("status")
        newest = SeenPolicy(
            name=observed.key[1],
            uid=observed.uid,
            generation=generation if isinstance(generation, int) else 0,
            version=str(metadata.get("resourceVersion") or ""),
            error="",
            policy=None,
            left_out=(),
            status=status if isinstance(status, dict) else {},
        )
        before = self._kept.get(newest.name)
        if before is not None and before.seen.uid != newest.uid:
            before = None
        if before is not None and (before.spec, before.seen.generation) == (spec, newest.generation):
            known = before.seen
            return _Kept(newest._replace(error=known.error, policy=known.policy, left_out=known.left_out), spec)
        named = {key: metadata[key] for key in ("name", "generation") if key in metadata}
        cleaned = {"apiVersion": API_VERSION, "kind": KIND, "metadata": named, "spec": spec}
        return _Kept(self._parsed(newest, cleaned, before.seen if before else None), spec)

    def _parsed(self, newest: SeenPolicy, obj: JsonObject, before: SeenPolicy | None) -> SeenPolicy:
        try:
            return newest._replace(policy=parse_policy(obj))
        except PolicyError as error:
            result = newest._replace(error=str(error))
            if before is not None and before.policy is not None and not before.left_out:
                result = result._replace(policy=before.policy)
            elif error.rules and newest.generation > _FIRST:
                result = _without_bad_rules(result, obj, error.rules)
            message = "GPUPolicy is invalid; its last valid generation stays in force"
            self._log.error(message, error=str(error), last=result.policy is not None, fate=result.outcome)
            return result


def _without_bad_rules(found: SeenPolicy, obj: JsonObject, rules: frozenset[str]) -> SeenPolicy:
    try:
        return found._replace(policy=without_rules(obj, rules), left_out=tuple(sorted(rules)))
    except PolicyError:
        return found


def _effective(kept: _Kept) -> tuple[Policy | None, str, tuple[str, ...]]:
    """Return the parts of a policy that admission depends on."""
    return (kept.seen.policy, kept.seen.error, kept.seen.left_out)
