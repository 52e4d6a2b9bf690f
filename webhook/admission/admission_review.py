"""Decode and encode AdmissionReview ``admission.k8s.io/v1``.

Field meanings: ``k8s.io/api/admission/v1`` ``AdmissionRequest`` and ``AdmissionResponse``.
"""

import binascii
import gc
from typing import Any, Final, NamedTuple

import orjson

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
#: Bytes from which a body may have many thousand objects.
_LARGE: Final = 256 * 1024
#: Lists and maps of a body that is read. 300,000 take 20 ms to 40 ms to parse and free, and nothing interrupts that. An apiserver
#: stores objects of at most 1.5 MiB, so that one which it sends, with the old one, has over 10 bytes for each.
MOST_CONTAINERS: Final = 300_000
_OBJECTS: Final = (b'"object":', b'"oldObject":')


class BadRequestError(ValueError):
    """The body is not an AdmissionReview that can be answered; ``reason`` is a short reason for metrics."""

    def __init__(self, message: str, *, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class Request(NamedTuple):
    """One admission request.

    Attributes:
        api_version: of the object, ``group/version``.
        operation: ``CREATE``, ``UPDATE``, ``DELETE`` or ``CONNECT``.
        namespace: namespace of the request, empty for cluster-scoped objects.
        name: name of the object, empty before it is generated.
        subresource: empty for the object itself.
        dry_run: whether the apiserver will store nothing.
        user: name of the requesting user.
        object: the object, None on DELETE.
        old: the old object, None on CREATE.
        unread: why the objects were not read; empty if they were.
    """

    uid: str
    api_version: str
    kind: str
    operation: str
    namespace: str
    name: str
    subresource: str
    dry_run: bool
    user: str
    object: dict[str, Any] | None
    old: dict[str, Any] | None
    unread: str = ""

    @property
    def generated_name(self) -> str:
        """Return the object's ``generateName`` with a star; empty without one."""
        metadata = self.object.get("metadata") if self.object is not None else None
        prefix = metadata.get("generateName") if type(metadata) is dict else None
        return f"{prefix}*" if type(prefix) is str and prefix else ""


class AdmissionResponse(NamedTuple):
    """The answer to one request.

    Attributes:
        patch: JSON Patch operations.
        audit: audit annotations, key (last part of a qualified name) to text.
        message: reason of a denial.
    """

    allowed: bool
    patch: list[dict[str, Any]]
    warnings: list[str]
    audit: dict[str, str]
    message: str = ""


def parse(body: bytes) -> Request:
    """Decode the request of an AdmissionReview body.

    Raises:
        BadRequestError: the body is not JSON, not an AdmissionReview v1, or lacks a required field.
    """
    # Each has two brackets. Those in texts count, too: finding the ends of texts takes as long as reading.
    containers = body.count(b"[") + body.count(b"{") if len(body) > 2 * MOST_CONTAINERS else 0
    if containers > MOST_CONTAINERS:
        return _without_objects(body, containers)
    try:
        review = orjson.loads(body) if len(body) < _LARGE else _loads_large(body)
    except orjson.JSONDecodeError as error:
        message = f"the body is not valid JSON: {error}"
        raise BadRequestError(message, reason="json") from None
    return parse_review(review)


def _without_objects(body: bytes, containers: int) -> Request:
    """Decode what the apiserver writes before the objects."""
    starts = [at for name in _OBJECTS if (at := body.find(name)) >= 0]
    problem = f"it has {containers:,} lists and maps, more than the {MOST_CONTAINERS:,} that are read"
    try:
        review = orjson.loads(body[: min(starts, default=0)].rstrip(b",") + b"}}")
    except orjson.JSONDecodeError:
        raise BadRequestError(problem, reason="json") from None
    return parse_review(review)._replace(unread=problem)


def _loads_large(body: bytes) -> object:
    """Decode without the garbage collector, which would walk over the new objects again and again for a third of the time."""
    gc.disable()
    try:
        return orjson.loads(body)
    finally:
        gc.enable()


def parse_review(review: object) -> Request:
    """Decode the request of a parsed AdmissionReview.

    Raises:
        BadRequestError: it is not an AdmissionReview v1, or lacks a required field.
    """
    if type(review) is not dict:
        message = f"the body must be an {KIND}, is {_name(review)}"
        raise BadRequestError(message)
    if review.get("kind") != KIND:
        message = f"kind must be {KIND}, is {review.get('kind')!r:.60}"
        raise BadRequestError(message, reason="kind")
    if review.get("apiVersion") != API_VERSION:
        message = (
            f"apiVersion {review.get('apiVersion')!r:.60} is not served: put admissionReviewVersions: [v1] in the configuration"
        )
        raise BadRequestError(message, reason="version")
    return _request(_field(review, "request", dict, ""))


def _request(request: dict[str, Any]) -> Request:
    uid = request.get("uid")
    if type(uid) is not str or not uid:
        message = "request.uid must be a string that is not empty"
        raise BadRequestError(message, reason="uid")
    kind = _field(request, "kind", dict, "request.")
    operation = _field(request, "operation", str, "request.")
    group, version, name = kind.get("group"), kind.get("version"), kind.get("kind")
    group, version = "" if group is None else group, "" if version is None else version
    if type(group) is not str or type(version) is not str or type(name) is not str:
        message = "request.kind must hold the strings group, version and kind"
        raise BadRequestError(message)
    user, dry_run = request.get("userInfo"), request.get("dryRun") is True
    return Request(
        uid,
        f"{group}/{version}" if group else version,
        name,
        operation,
        _optional(request, "namespace", str) or "",
        _optional(request, "name", str) or "",
        _optional(request, "subResource", str) or "",
        dry_run,
        str(user.get("username") or "") if type(user) is dict else "",
        _optional(request, "object", dict),
        _optional(request, "oldObject", dict),
    )


def _name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _field(parent: dict[str, Any], key: str, required: type, prefix: str) -> Any:  # noqa: ANN401 - of the required type
    value = parent.get(key)
    if type(value) is not required:
        kind = "an object" if required is dict else "a string"
        message = f"{prefix}{key} must be {kind}, is {_name(value)}"
        raise BadRequestError(message)
    return value


def _optional(request: dict[str, Any], key: str, required: type) -> Any:  # noqa: ANN401 - of the required type, or None
    value = request.get(key)
    return value if value is None or type(value) is required else _field(request, key, required, "request.")


def render(uid: str, answer: AdmissionResponse) -> bytes:
    """Encode the AdmissionReview that answers the request ``uid``."""
    response: dict[str, Any] = {"uid": uid, "allowed": answer.allowed}
    if answer.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = binascii.b2a_base64(orjson.dumps(answer.patch), newline=False).decode("ascii")
    if answer.warnings:
        response["warnings"] = answer.warnings
    if answer.audit:
        response["auditAnnotations"] = answer.audit
    if not answer.allowed:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": answer.message}
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})
