"""Whether two pod templates say the same, however they are spelt.

Who reads a custom resource into its type and writes it back, as Kueue's webhooks and operators do, spells its quantities anew
(``1`` becomes ``"1"``, ``1024Mi`` becomes ``1Gi``), states empty maps that nobody wrote, and leaves out what is empty or false (a
variable's ``value: ""``, a mount's ``readOnly: false``). Whoever applies from Git sends the old spelling again.
"""

from __future__ import annotations

from typing import Any, Final

from gpugate.policies.kube.quantity import QuantityError, exact

#: Maps of quantities, and fields that hold one.
_AMOUNTS: Final = frozenset({"limits", "overhead", "requests"})
_AMOUNT: Final = frozenset({"divisor", "sizeLimit"})
#: What says the same where it is empty, false or zero and where it is not there: Go's types leave it out as they are written
#: (``k8s.io/api`` ``core/v1``, what is no pointer and has ``omitempty``), or write it empty where nobody has stated it.
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
    """Whether two templates, or parts of them, differ in nothing but their spelling."""
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
    """What is ``stated``: a divisor that is not is written as zero, which is as good as none."""
    return "0" if key == "divisor" and stated is None else stated


def _are_one_amount(one: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON value
    try:
        return bool(one == other) or exact(one) == exact(other)
    except QuantityError:
        return False
