"""A ResourceQuota limits accelerators by ``requests.<name>``, and by no other name.

The quota of an extended resource is counted under ``requests.`` alone (``k8s.io/kubernetes`` v1.36
``pkg/quota/v1/evaluator/core/pods.go``, ``isExtendedResourceNameForQuota``), since it cannot be overcommitted. The apiserver takes
any name with a slash in it, shows it in the status, and counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.accelerators import LEGACY_GPU, NVIDIA_GPU, may_be_accelerator, suggestion
from gpugate.policies.kube.fields import Object
from gpugate.policies.lint.context import LintContext, map_at

_COUNTED: Final = "requests."
_LIMITS: Final = "limits."


def check(obj: Object, _around: LintContext) -> Iterator[Finding]:
    """Names of accelerators that no quota is kept by."""
    hard = map_at(obj, "spec", "hard")
    for name in sorted(hard):
        bare = name.removeprefix(_COUNTED).removeprefix(_LIMITS)
        if not may_be_accelerator(bare) or name.startswith("count/"):
            continue
        right = NVIDIA_GPU if bare == LEGACY_GPU else suggestion(bare) or bare
        if name == _COUNTED + right:
            continue
        amount, place = f"{hard[name]}", ("spec", "hard", name)
        if name.startswith(_COUNTED):
            message = f"no device plugin serves {bare}: the quota of {amount} limits nothing"
        elif _COUNTED + right in hard:
            counted = f"{_COUNTED}{right}: {hard[_COUNTED + right]}"
            message = f"nothing counts the quota {name}: {amount}, and what is counted stands beside it: {counted}"
            yield Finding("QuotaNotCounted", place, message, f"Remove {name}.", Level.WARN)
            continue
        else:
            message = f"the apiserver takes the quota {name}: {amount}, and nothing counts it: pods may take any number"
        yield Finding("QuotaNotCounted", place, message, f'Write {_COUNTED}{right}: "{amount}".')
