"""Semantic equality of pod templates: quantity formats and Go zero values are ignored.

A client that decodes a custom resource and writes it back, such as Kueue's webhooks and operators, reformats quantities (``1``
becomes ``"1"``, ``1024Mi`` becomes ``1Gi``), adds empty maps, and drops empty and false values (a variable's ``value: ""``, a
mount's ``readOnly: false``). An apply from Git sends the original form again.
"""

from typing import Any, Final

from gpugate.policies.kube.quantity import QuantityError, exact

_QUANTITY_MAPS: Final = frozenset({"limits", "overhead", "requests"})
_QUANTITIES: Final = frozenset({"divisor", "sizeLimit"})
#: Fields whose empty, false or zero value equals an absent one: Go drops them on encoding (``k8s.io/api`` ``core/v1``, no
#: pointer and ``omitempty``), or writes them empty if absent.
_OMITTED_IF_EMPTY: Final = frozenset(
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


def semantically_equal(left: Any, right: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether two templates, or parts of them, are semantically equal."""
    if left == right:
        return True
    if type(left) is dict and type(right) is dict:
        return all(_fields_equal(key, left.get(key), right.get(key)) for key in left.keys() | right.keys())
    if type(left) is list and type(right) is list:
        return len(left) == len(right) and all(map(semantically_equal, left, right))
    return False


def _fields_equal(key: Any, left: Any, right: Any) -> bool:  # noqa: ANN401 - any JSON value
    if left == right or (key in _OMITTED_IF_EMPTY and not left and not right):
        return True
    if key in _QUANTITIES:
        # An absent divisor equals zero.
        default = "0" if key == "divisor" else None
        return _quantities_equal(default if left is None else left, default if right is None else right)
    if key in _QUANTITY_MAPS and type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(_quantities_equal(left[name], right[name]) for name in left)
    return semantically_equal(left, right)


def _quantities_equal(left: Any, right: Any) -> bool:  # noqa: ANN401 - any JSON value
    try:
        return bool(left == right) or exact(left) == exact(right)
    except QuantityError:
        return False
