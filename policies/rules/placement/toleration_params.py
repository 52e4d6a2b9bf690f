"""Tolerations that rules give to pods; what no rule ever tolerates is in :mod:`gpugate.policies.kube.taints`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import model_validator

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import CelRule, LabelKey, LabelValue, literal
from gpugate.policies.kube.fields import Object
from gpugate.policies.kube.taints import NEVER_ROLES, is_never_tolerated, not_transient_in_cel


class TaintParam(Params):
    """A taint that accelerator pods are to tolerate."""

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
    """The taint's value; any value where it is left out."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """The taint's effect."""

    @model_validator(mode="after")
    def _never_maintenance(self) -> TaintParam:
        if is_never_tolerated(self.key, self.value or ""):
            shown = self.key if self.value is None else f"{self.key}={self.value}"
            message = f"{shown} marks maintenance or a node's condition: gpugate never tolerates it"
            raise ValueError(message)
        return self


class WantedToleration(NamedTuple):
    """A taint to be tolerated, with any value where it is None, and the toleration for it."""

    key: str
    value: str | None
    effect: str
    toleration: Object
    note: str


def want(key: str, value: str | None, effect: str) -> WantedToleration:
    """The toleration of a taint with this key, effect and value (any value where it is None)."""
    toleration = {"key": key, "operator": "Exists" if value is None else "Equal"}
    if value is not None:
        toleration["value"] = value
    toleration["effect"] = effect
    return WantedToleration(key, value, effect, toleration, f"toleration {key}{'' if value is None else '=' + value}:{effect}")


def covers(toleration: Object, key: str, value: str | None, effect: str) -> bool:
    """Whether ``toleration`` tolerates every taint with this key, effect and value (any value where it is None)."""
    if (toleration.get("effect") or effect) != effect:
        return False
    operator = toleration.get("operator") or "Equal"
    if not toleration.get("key"):
        return bool(operator == "Exists")
    if toleration.get("key") != key:
        return False
    return bool(operator == "Exists") or (value is not None and (toleration.get("value") or "") == value)
