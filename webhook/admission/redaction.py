"""Remove secrets from AdmissionReviews without changing the decision of the rules.

Hidden values become short digests under a key that is not stored: equal values of one review stay equal, since rules compare
old and new objects, and guesses cannot be tested against the digests.
"""

import hashlib
import re
from typing import Any, Final

from gpugate.policies.cluster.records.pod_groups import KAI_GROUP
from gpugate.policies.kube.managers import GITOPS_MANAGERS, LAST_APPLIED, applied_in_short, managed_in_short
from gpugate.policies.rules.ownership.attribution import DEFAULT_KEYS
from gpugate.policies.rules.registry import READ_VARIABLES
from gpugate.policies.workloads.device_access import DEVICE_ANNOTATIONS
from gpugate.policies.workloads.recorded_edits import ANNOTATION

#: Kept fields of a request, beside objects and user.
_KEPT_FIELDS: Final = (
    *("uid", "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource"),
    *("name", "namespace", "operation", "dryRun"),
)
#: Kept fields of the user; others may come from an authenticating proxy.
_USER: Final = ("username", "groups")
#: Fields that are hidden as a whole: arguments, configuration texts, driver parameters.
_HIDDEN: Final = frozenset(
    {
        *("args", "command", "entrypoint", "httpHeaders", "runtimeEnvYAML", "serveConfigV2", "userData"),
        *("binaryData", "data", "stringData"),
        *("attributes", "message", "options", "parameters", "volumeAttributes"),
    }
)
#: Fields with names and amounts only, even if their keys look secret.
_PLAIN: Final = frozenset({"capacity", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests"})
#: Keys of secret texts; names of Secrets and references to them are not secret.
_SECRET: Final = re.compile(r"token|passw|secret|credential|(api|access|private).?key", re.IGNORECASE)
_NAMES_ONE: Final = re.compile(r"(name|ref|path)$", re.IGNORECASE)
_CREDENTIALS_IN_URL: Final = re.compile(r"://[^/\s@]+@")
#: Settings of NCCL, which are not secret; rules read too many of them to list.
_SETTINGS: Final = "NCCL_"
#: Domains of annotations that gpugate, queues, schedulers and operators read; other values are hidden.
_KEPT_DOMAINS: Final = re.compile(
    r"(|.*\.)(gpugate\.io|x-k8s\.io|sigs\.k8s\.io|volcano\.sh|kubeflow\.org|ray\.io|codeflare\.dev|karpenter\.sh|kai\.scheduler)"
    r"|scheduling\.k8s\.io|cloud\.google\.com|argocd\.argoproj\.io"
)
#: Other kept annotations: the owner of a workload, under the built-in attribution keys.
_KEPT_ANNOTATIONS: Final = frozenset({KAI_GROUP, *(name for key in DEFAULT_KEYS for name in key.spellings)})


class Redactor:
    """Hides the values of one review that its decision does not need."""

    def __init__(self, key: bytes) -> None:
        """Hide with ``key``, random bytes that are not stored."""
        self._key = key
        self._record = ""

    def review(self, review: dict[str, Any]) -> dict[str, Any]:
        """Return a copy of ``review`` without secrets and unneeded fields."""
        request = review["request"]
        redacted = {name: request[name] for name in _KEPT_FIELDS if name in request}
        user = request.get("userInfo")
        if isinstance(user, dict):
            redacted["userInfo"] = {name: user[name] for name in _USER if name in user}
        for name in ("object", "oldObject"):
            redacted[name] = self._root(request.get(name))
        return {"apiVersion": review.get("apiVersion"), "kind": review.get("kind"), "request": redacted}

    def _root(self, root: Any) -> Any:  # noqa: ANN401 - any JSON value
        metadata = root.get("metadata") if isinstance(root, dict) else None
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        record = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
        # gpugate compares its own edits with its record of them.
        self._record = record if isinstance(record, str) else ""
        return self._redact(root)

    def _redact(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, dict):
            return {key: self._field(key, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._redact(item) for item in value]
        if isinstance(value, str) and "://" in value and _CREDENTIALS_IN_URL.search(value):
            return self._digest(value)
        return value

    def _field(self, key: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if key == "managedFields":
            return _managers(value)
        if key in _PLAIN:
            return value
        is_secret = isinstance(value, str) and _SECRET.search(key) and not _NAMES_ONE.search(key)
        if key in _HIDDEN or is_secret:
            return self._hide(value)
        if key == "annotations" and isinstance(value, dict):
            return {name: self._redact_annotation(name, item) for name, item in value.items()}
        if key == "env" and isinstance(value, list):
            return [self._redact_variable(item) for item in value]
        return self._redact(value)

    def _redact_annotation(self, name: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        if name == LAST_APPLIED and isinstance(value, str):
            return applied_in_short(value) or self._hide(value)
        return value if _is_kept_annotation(name) else self._hide(value)

    def _redact_variable(self, entry: Any) -> Any:  # noqa: ANN401 - any JSON value
        if not isinstance(entry, dict) or "value" not in entry:
            return self._redact(entry)
        name, value = entry.get("name"), entry["value"]
        redacted = {key: self._redact(item) for key, item in entry.items() if key != "value"}
        known = isinstance(name, str) and (name in READ_VARIABLES or (name.startswith(_SETTINGS) and not _SECRET.search(name)))
        is_recorded = isinstance(value, str) and bool(value) and f'"{value}"' in self._record
        redacted["value"] = value if known or is_recorded else self._hide(value)
        return redacted

    def _hide(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """Replace all texts in ``value`` by digests; the structure stays."""
        if isinstance(value, dict):
            return {key: self._hide(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._hide(item) for item in value]
        return self._digest(value) if isinstance(value, str) and value else value

    def _digest(self, text: str) -> str:
        raw = text.encode("utf-8", "surrogatepass")
        return f"hidden-{hashlib.blake2b(raw, key=self._key, digest_size=6).hexdigest()}"


def _is_kept_annotation(annotation: str) -> bool:
    domain, slash, _ = annotation.partition("/")
    return (
        annotation in _KEPT_ANNOTATIONS
        or annotation.startswith(DEVICE_ANNOTATIONS)
        or (bool(slash) and _KEPT_DOMAINS.fullmatch(domain) is not None)
    )


def _managers(fields: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Reduce managed fields to GitOps managers and the fields that rules read."""
    if not isinstance(fields, list):
        return fields
    entries = [
        entry if entry.get("manager") in GITOPS_MANAGERS else entry | {"manager": "somebody"} for entry in managed_in_short(fields)
    ]
    return [entry for at, entry in enumerate(entries) if entry not in entries[:at]]
