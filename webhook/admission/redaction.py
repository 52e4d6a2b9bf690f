"""AdmissionReviews without their secrets, by which the rules decide as by the whole ones.

What is hidden becomes a short digest under a key that nobody keeps: equal values of one review stay equal, since rules compare an
object with what it was before, and nothing can be tried out against it.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

from gpugate.policies.cluster.records.pod_groups import KAI_GROUP
from gpugate.policies.kube.managers import GITOPS_MANAGERS, LAST_APPLIED, applied_in_short, managed_in_short
from gpugate.policies.rules.ownership.attribution.keys import DEFAULT_KEYS
from gpugate.policies.workloads.device_access import DEVICE_ANNOTATIONS, VARIABLES
from gpugate.policies.workloads.recorded_edits import ANNOTATION

#: Parts of a request that are kept beside the objects and the user.
_KEPT: Final = (
    *("uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource"),
    *("name", "namespace", "operation", "dryRun"),
)
#: Parts of the user that are kept; the others may be what an authenticating proxy put there.
_USER: Final = ("username", "groups")
#: Fields of which everything below is hidden: programs' arguments, configuration in text, whatever drivers are given.
_HIDDEN: Final = frozenset(
    {
        *("args", "command", "entrypoint", "httpHeaders", "runtimeEnvYAML", "serveConfigV2", "userData"),
        *("binaryData", "data", "stringData"),
        *("attributes", "message", "options", "parameters", "volumeAttributes"),
    }
)
#: Fields below which there is nothing but names and amounts, whatever their keys sound like.
_PLAIN: Final = frozenset({"capacity", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests"})
#: Keys of texts that are secrets by their names; names of Secrets and references to them are none.
_SECRET: Final = re.compile(r"token|passw|secret|credential|(api|access|private).?key", re.IGNORECASE)
_NAMES_ONE: Final = re.compile(r"(name|ref|path)$", re.IGNORECASE)
_CREDENTIALS_IN_URL: Final = re.compile(r"://[^/\s@]+@")
#: Environment variables that rules read, and the settings of NCCL, which are no secrets.
_ENVIRONMENT: Final = frozenset(
    {
        *VARIABLES,
        *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
        *("CUDA_LAUNCH_BLOCKING", "NVIDIA_DRIVER_CAPABILITIES"),
    }
)
_SETTINGS: Final = "NCCL_"
#: Domains of annotations by which gpugate, queues, schedulers and operators are told things; of all others the value is hidden.
_TELLING: Final = re.compile(
    r"(|.*\.)(gpugate\.io|x-k8s\.io|sigs\.k8s\.io|volcano\.sh|kubeflow\.org|ray\.io|codeflare\.dev|karpenter\.sh|kai\.scheduler)"
    r"|scheduling\.k8s\.io|cloud\.google\.com|argocd\.argoproj\.io"
)
#: Other annotations that are kept: who a workload belongs to, in the spellings that gpugate looks for by itself.
_NAMED: Final = frozenset({KAI_GROUP, *(name for key in DEFAULT_KEYS for name in key.spellings)})


class Redactor:
    """Hides what one review does not need to be decided."""

    __slots__ = ("_key", "_record")

    def __init__(self, key: bytes) -> None:
        """Hide under ``key``, random bytes that are forgotten afterwards."""
        self._key = key
        self._record = ""

    def review(self, review: dict[str, Any]) -> dict[str, Any]:
        """A copy of ``review`` without secrets, and without what it does not need."""
        request = review["request"]
        kept = {name: request[name] for name in _KEPT if name in request}
        user = request.get("userInfo")
        if isinstance(user, dict):
            kept["userInfo"] = {name: user[name] for name in _USER if name in user}
        for name in ("object", "oldObject"):
            kept[name] = self._root(request.get(name))
        return {"apiVersion": review.get("apiVersion"), "kind": review.get("kind"), "request": kept}

    def _root(self, root: Any) -> Any:  # noqa: ANN401 - any JSON value
        metadata = root.get("metadata") if isinstance(root, dict) else None
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        record = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
        # What gpugate itself wrote is compared with its record of it.
        self._record = record if isinstance(record, str) else ""
        return self._kept(root)

    def _kept(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, dict):
            return {key: self._field(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._kept(item) for item in value]
        if isinstance(value, str) and "://" in value and _CREDENTIALS_IN_URL.search(value):
            return self._digest(value)
        return value

    def _field(self, key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if key == "managedFields":
            return _managers(value)
        if key in _PLAIN:
            return value
        if key in _HIDDEN or (isinstance(value, str) and _is_secret(key)):
            return self._hidden(value)
        if key == "annotations" and isinstance(value, dict):
            return {name: self._annotation(name, item) for name, item in value.items()}
        if key == "env" and isinstance(value, list):
            return [self._variable(item) for item in value]
        return self._kept(value)

    def _annotation(self, name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if name == LAST_APPLIED and isinstance(value, str):
            return applied_in_short(value) or self._hidden(value)
        return value if _tells(name) else self._hidden(value)

    def _variable(self, entry: Any) -> Any:  # noqa: ANN401 - any JSON value
        if not isinstance(entry, dict) or "value" not in entry:
            return self._kept(entry)
        name, value = entry.get("name"), entry["value"]
        kept = {key: self._kept(item) for key, item in entry.items() if key != "value"}
        known = isinstance(name, str) and (name in _ENVIRONMENT or (name.startswith(_SETTINGS) and not _SECRET.search(name)))
        kept["value"] = value if known or self._is_recorded(value) else self._hidden(value)
        return kept

    def _is_recorded(self, value: Any) -> bool:  # noqa: ANN401 - any JSON value
        return isinstance(value, str) and bool(value) and f'"{value}"' in self._record

    def _hidden(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """``value`` with all texts in it hidden; what kind of value stands where stays."""
        if isinstance(value, dict):
            return {key: self._hidden(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._hidden(item) for item in value]
        return self._digest(value) if isinstance(value, str) and value else value

    def _digest(self, text: str) -> str:
        raw = text.encode("utf-8", "surrogatepass")
        return f"hidden-{hashlib.blake2b(raw, key=self._key, digest_size=6).hexdigest()}"


def _is_secret(key: str) -> bool:
    return _SECRET.search(key) is not None and not _NAMES_ONE.search(key)


def _tells(annotation: str) -> bool:
    domain, slash, _ = annotation.partition("/")
    return (
        annotation in _NAMED
        or annotation.startswith(DEVICE_ANNOTATIONS)
        or (bool(slash) and _TELLING.fullmatch(domain) is not None)
    )


def _managers(fields: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Of the managed fields, what shows that a GitOps tool keeps the object, and who states what rules ask about."""
    if not isinstance(fields, list):
        return fields
    known = [one if one.get("manager") in GITOPS_MANAGERS else one | {"manager": "somebody"} for one in managed_in_short(fields)]
    return [one for at, one in enumerate(known) if one not in known[:at]]
