"""Semantic equality of pod templates: quantity formats and Go zero values are ignored.

A client that decodes a custom resource and writes it back, such as Kueue's webhooks and operators, reformats quantities (``1``
becomes ``"1"``, ``1024Mi`` becomes ``1Gi``), adds empty maps, and drops empty and false values (a variable's ``value: ""``, a
mount's ``readOnly: false``). An apply from Git sends the original form again.
"""

from typing import Any, Final

from gpugate.policies.kube.quantity import QuantityError, exact

#: Maps of quantities, and fields that hold one.
_AMOUNTS: Final = frozenset({"limits", "overhead", "requests"})
_AMOUNT: Final = frozenset({"divisor", "sizeLimit"})
#: Fields that mean the same absent and empty, false or zero: Go drops them on encoding (``k8s.io/api`` ``core/v1``, no
#: pointer and ``omitempty``), or writes them empty if absent.
_EMPTY_OR_NOT: Final = frozenset(
    {
        *("args", "command", "containers", "env", "envFrom", "ephemeralContainers", "hostAliases", "imagePullSecrets"),
        *("initContainers", "ports", "readinessGates", "resourceClaims", "schedulingGates", "tolerations"),
        *("topologySpreadConstraints", "volumeDevices", "volumeMounts", "volumes"),
        *("add", "claims", "drop", "items", "matchExpressions", "matchFields", "values"),
        *("annotations", "labels", "limits", "matchLabels", "metadata", "nodeSelector", "overhead", "requests", "resources"),
        *("creationTimestamp", "effect", "hostIP", "hostname", "imagePullPolicy", "medium", "name", "operator", "subPath"),
        *("terminationMessagePath", "terminationMessagePolicy", "value", "workingDir"),
        *("failureThreshold", "hostPort", "initialDelaySeconds", "periodSeconds", "successThreshold", "timeoutSeconds"),
        *("hostIPC", "hostNetwork", "hostPID", "readOnly", "stdin", "stdinOnce", "tty"),
    }
)


def semantically_equal(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether two templates, or parts of them, are semantically equal."""
    if one == other:
        return True
    if type(one) is dict and type(other) is dict:
        return all(_fields_say_the_same(key, one.get(key), other.get(key)) for key in one.keys() | other.keys())
    if type(one) is list and type(other) is list:
        return len(one) == len(other) and all(map(semantically_equal, one, other))
    return False


def _fields_say_the_same(key: Any, one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    if one == other or (key in _EMPTY_OR_NOT and not one and not other):
        return True
    if key in _AMOUNT:
        return _are_one_amount(_amount(key, one), _amount(key, other))
    if key in _AMOUNTS and type(one) is dict and type(other) is dict:
        return one.keys() == other.keys() and all(_are_one_amount(one[name], other[name]) for name in one)
    return semantically_equal(one, other)


def _amount(key: str, stated: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the amount at ``key``; an absent divisor equals zero."""
    return "0" if key == "divisor" and stated is None else stated


def _are_one_amount(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    try:
        return bool(one == other) or exact(one) == exact(other)
    except QuantityError:
        return False
