"""Taints in policies, and the tolerations that rules add for taints."""

from collections.abc import Iterable
from typing import Literal, NamedTuple, Self

from pydantic import model_validator

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import CelRule, LabelKey, LabelValue, literal
from gpugate.policies.kube.fields import Object, mappings
from gpugate.policies.kube.taints import NEVER_ROLES, is_never_tolerated, not_transient_in_cel
from gpugate.policies.patch import Edit
from gpugate.policies.workloads.pod_set import PodSet


class TaintParam(Params):
    """A taint that GPU pods tolerate."""

    validations = (
        CelRule(
            f"!(self.key in {literal(sorted(NEVER_ROLES))}) && {not_transient_in_cel('self.key')}"
            f" && (!has(self.value) || {not_transient_in_cel('self.value', whole_key=False)})",
            "marks maintenance or a node's condition: gpugate never tolerates it",
        ),
    )

    key: LabelKey
    """The taint's key."""
    value: LabelValue | None = None
    """The taint's value; any value if it is left out."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """The taint's effect."""

    @model_validator(mode="after")
    def _never_maintenance(self) -> Self:
        if is_never_tolerated(self.key, self.value or ""):
            shown = self.key if self.value is None else f"{self.key}={self.value}"
            message = f"{shown} marks maintenance or a node's condition: gpugate never tolerates it"
            raise ValueError(message)
        return self


class ToleratedTaint(NamedTuple):
    """A taint that pods must tolerate, with any value if ``value`` is None."""

    key: str
    value: str | None
    effect: str

    @property
    def toleration(self) -> Object:
        """The toleration for the taint."""
        if self.value is None:
            return {"key": self.key, "operator": "Exists", "effect": self.effect}
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect}

    def is_covered_by(self, toleration: Object) -> bool:
        """Return whether ``toleration`` tolerates every such taint."""
        if (toleration.get("effect") or self.effect) != self.effect:
            return False
        exists = toleration.get("operator") == "Exists"
        if not toleration.get("key"):
            return exists
        if toleration.get("key") != self.key:
            return False
        return exists or (self.value is not None and (toleration.get("value") or "") == self.value)


def missing_tolerations(pods: PodSet, taints: Iterable[ToleratedTaint]) -> list[Edit]:
    """Return the edits that add tolerations for those of ``taints`` that would keep ``pods`` off a node."""
    present = list(mappings(pods.spec, "tolerations", pods.field()))
    edits = []
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not any(map(taint.is_covered_by, present)):
            present.append(taint.toleration)
            value = "" if taint.value is None else f"={taint.value}"
            note = f"toleration {taint.key}{value}:{taint.effect}"
            edits.append(Edit("append", pods.field("tolerations"), taint.toleration, note))
    return edits
