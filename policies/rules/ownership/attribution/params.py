"""Parameters of the rule `attribution`."""

from typing import Self

from pydantic import model_validator

from gpugate.policies.framework.params import Params
from gpugate.policies.kube.cel import CelRule
from gpugate.policies.rules.ownership.attribution.keys import DEFAULT_KEYS, Keys


class AttributionParams(Params):
    """Parameters of `attribution`."""

    validations = (
        CelRule(
            "!has(self.keys) || self.keys.all(one, self.keys.exists_one(other, other.what == one.what))",
            "keys: two have the same what",
        ),
        CelRule(
            "!has(self.keys) || self.keys.all(one, self.keys.exists_one(other, other.name == one.name))",
            "keys: two have the same name",
        ),
    )

    keys: Keys = DEFAULT_KEYS
    """What a workload has to say of who it belongs to."""

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        for field in ("what", "name"):
            values = [getattr(one, field) for one in self.keys]
            for at, value in enumerate(values):
                if value in values[:at]:
                    message = f"keys: two have the same {field}, {value}"
                    raise ValueError(message)
        return self
