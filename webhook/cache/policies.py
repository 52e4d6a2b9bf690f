"""The GPUPolicies of the cluster: what each says now, and what of it is in force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gpugate.policies.policy.models import API_VERSION, KIND, Policy, PolicyError, parse_policy, without_rules
from gpugate.webhook.cache.kinds import Observed
from gpugate.webhook.kube.types import JsonObject
from gpugate.webhook.runtime.log import Log

#: The generation of an object that was never changed: before it, nothing of that object was in force.
_FIRST: Final = 1


class SeenPolicy(NamedTuple):
    """A GPUPolicy as the cluster has it.

    Attributes:
        name: its name.
        uid: its uid.
        generation: its newest generation.
        version: its resourceVersion.
        error: why the newest generation does not parse; empty where it does.
        policy: what is in force of it: the newest generation, or the last good one; None where there is none.
        left_out: the rules that do not parse, where the others of the newest generation are in force.
        status: its status, as somebody wrote it.
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
        """The generation that is in force; None where none is."""
        return None if self.policy is None else self.policy.generation

    @property
    def outcome(self) -> str:
        """What became of a policy that does not parse, in words."""
        if self.policy is None:
            return "nothing of it is in force"
        if self.left_out:
            return f"generation {self.generation} is in force without {', '.join(self.left_out)}"
        return f"generation {self.in_force} stays in force"


class _Kept(NamedTuple):
    """What was made of an object, and of which spec."""

    seen: SeenPolicy
    spec: Any


class PolicyStore:
    """Reads GPUPolicies as they come. One that does not parse stops nobody.

    - The last good generation of it stays in force.
    - A replica that starts afterwards knows of none. It puts in force what parses, provided that only the settings of some rules
      do not: those rules are disabled in it. What it is for, and how strictly, is never guessed.
    - Of a policy that was never changed since it was made, nothing is in force: there was never a good one.

    Attributes:
        version: counts everything that was seen to change, a status, too.
    """

    def __init__(self, log: Log) -> None:
        self.version = 0
        self._log = log
        self._kept: dict[str, _Kept] = {}

    def replaced(self, objects: Sequence[Observed]) -> bool:
        """Take a full list; says whether anything but a status changed."""
        after = {one.key[1]: self._read(one) for one in objects}
        before, self._kept = self._kept, after
        self.version += 1
        return {name: _essence(one) for name, one in before.items()} != {name: _essence(one) for name, one in after.items()}

    def changed(self, one: Observed, *, gone: bool) -> bool:
        """Take one event; says whether anything but a status changed."""
        self.version += 1
        name = one.key[1]
        before = self._kept.get(name)
        if gone:
            return self._kept.pop(name, None) is not None
        self._kept[name] = after = self._read(one)
        return before is None or _essence(before) != _essence(after)

    def in_force(self) -> list[Policy]:
        """The policies that reviews are judged by."""
        return [one.seen.policy for one in self._kept.values() if one.seen.policy is not None]

    def seen(self) -> list[SeenPolicy]:
        """Every GPUPolicy, by name."""
        return [self._kept[name].seen for name in sorted(self._kept)]

    def _read(self, one: Observed) -> _Kept:
        item: JsonObject = one.record
        metadata, spec = item["metadata"], item.get("spec")
        generation, status = metadata.get("generation"), item.get("status")
        newest = SeenPolicy(
            name=one.key[1],
            uid=one.uid,
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
            found = newest._replace(error=str(error))
            if before is not None and before.policy is not None and not before.left_out:
                found = found._replace(policy=before.policy)
            elif error.rules and newest.generation > _FIRST:
                found = _salvaged(found, obj, error.rules)
            message = "GPUPolicy does not parse; the last good one stays in force"
            self._log.error(message, error=str(error), last=found.policy is not None, fate=found.outcome)
            return found


def _salvaged(found: SeenPolicy, obj: JsonObject, rules: frozenset[str]) -> SeenPolicy:
    try:
        return found._replace(policy=without_rules(obj, rules), left_out=tuple(sorted(rules)))
    except PolicyError:
        return found


def _essence(kept: _Kept) -> tuple[Policy | None, str, tuple[str, ...]]:
    """What others than the status are made from."""
    return (kept.seen.policy, kept.seen.error, kept.seen.left_out)
