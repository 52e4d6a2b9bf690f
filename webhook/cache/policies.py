"""Store of the GPUPolicies of the cluster, with the generation in force of each."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
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
        error: why the newest generation is invalid; empty if it is valid.
        policy: the policy in force: the newest generation, or the last valid one; None if there is none.
        left_out: invalid rules that are disabled while the other rules of the newest generation are in force.
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


class _Parsed(NamedTuple):
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
        self._parsed: dict[str, _Parsed] = {}

    def replaced(self, objects: Sequence[Observed]) -> bool:
        """Take a full list; return whether anything but a status changed."""
        after = {observed.key[1]: self._read(observed) for observed in objects}
        before, self._parsed = self._parsed, after
        self.version += 1
        return _effective(before) != _effective(after)

    def changed(self, observed: Observed, *, gone: bool) -> bool:
        """Take one event; return whether anything but a status changed."""
        self.version += 1
        name = observed.key[1]
        before = dict(self._parsed)
        if gone:
            self._parsed.pop(name, None)
        else:
            self._parsed[name] = self._read(observed)
        return _effective(before) != _effective(self._parsed)

    def in_force(self) -> list[Policy]:
        """Return the policies in force."""
        return [parsed.seen.policy for parsed in self._parsed.values() if parsed.seen.policy is not None]

    def seen(self) -> list[SeenPolicy]:
        """Return every GPUPolicy, sorted by name."""
        return [self._parsed[name].seen for name in sorted(self._parsed)]

    def _read(self, observed: Observed) -> _Parsed:
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
        parsed = self._parsed.get(newest.name)
        before = parsed.seen if parsed is not None and parsed.seen.uid == newest.uid else None
        if before is not None and parsed is not None and (parsed.spec, before.generation) == (spec, newest.generation):
            return _Parsed(newest._replace(error=before.error, policy=before.policy, left_out=before.left_out), spec)
        named = {key: metadata[key] for key in ("name", "generation") if key in metadata}
        cleaned = {"apiVersion": API_VERSION, "kind": KIND, "metadata": named, "spec": spec}
        return _Parsed(self._parse(newest, cleaned, before), spec)

    def _parse(self, newest: SeenPolicy, obj: JsonObject, before: SeenPolicy | None) -> SeenPolicy:
        try:
            return newest._replace(policy=parse_policy(obj))
        except PolicyError as error:
            seen = newest._replace(error=str(error))
            if before is not None and before.policy is not None and not before.left_out:
                seen = seen._replace(policy=before.policy)
            elif error.rules and newest.generation > _FIRST:
                with suppress(PolicyError):
                    seen = seen._replace(policy=without_rules(obj, error.rules), left_out=tuple(sorted(error.rules)))
            message = "GPUPolicy is invalid; its last valid generation stays in force"
            self._log.error(message, error=str(error), last=seen.policy is not None, outcome=seen.outcome)
            return seen


def _effective(policies: Mapping[str, _Parsed]) -> dict[str, tuple[Policy | None, str, tuple[str, ...]]]:
    """Return the parts of the policies that admission depends on."""
    return {name: (parsed.seen.policy, parsed.seen.error, parsed.seen.left_out) for name, parsed in policies.items()}
