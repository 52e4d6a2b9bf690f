"""Kueue's own Configuration (``config.kueue.x-k8s.io``, v0.15): how it counts workloads, and which kinds it manages."""

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from gpugate.policies.cluster.records.common import frozen
from gpugate.policies.kube.fields import Object, mapping, mappings, sequence
from gpugate.policies.kube.quantity import QuantityError, exact


class Transformation(NamedTuple):
    """A resource that Kueue counts as others (``resources.transformations``).

    Attributes:
        resource: the resource that pods request.
        replaces: True if the resource itself is not counted.
        outputs: amounts per unit (a core, a byte, a device) by resource: cores, bytes or counts, not rounded.
    """

    resource: str
    replaces: bool
    outputs: Mapping[str, Fraction]


class KueueConfiguration(NamedTuple):
    """Kueue's Configuration: which resources it counts how, and which kinds it manages.

    Attributes:
        excluded: prefixes of resources that Kueue does not count (``resources.excludeResourcePrefixes``).
        transformations: resources that it counts as others.
        frameworks: kinds that it manages (``integrations.frameworks``), as written there: ``batch/job``, ``pod``.
        device_classes: device class of dynamic resource allocation to the resource it counts as.
    """

    excluded: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    frameworks: frozenset[str] = frozenset()
    device_classes: Mapping[str, str] = frozen({})


def _factors(transformation: Object) -> Mapping[str, Fraction]:
    factors = {}
    for name, quantity in mapping(transformation, "outputs", ()).items():
        try:
            factors[str(name)] = exact(quantity)
        except QuantityError:
            continue
    return frozen(factors)


def kueue_configuration_of(obj: Object) -> KueueConfiguration:
    """Return the record of a Configuration (``config.kueue.x-k8s.io``, ``v1beta1`` or ``v1beta2``)."""
    resources = mapping(obj, "resources", ())
    transformations = []
    for one in mappings(resources, "transformations", ("resources",)):
        replaces = one.get("strategy") == "Replace"
        transformations.append(Transformation(str(one.get("input") or ""), replaces, _factors(one)))
    classes = {
        str(name): str(one.get("name") or "")
        for one in mappings(resources, "deviceClassMappings", ("resources",))
        for name in sequence(one, "deviceClassNames", ("resources",))
    }
    frameworks = sequence(mapping(obj, "integrations", ()), "frameworks", ("integrations",))
    return KueueConfiguration(
        tuple(sorted(map(str, sequence(resources, "excludeResourcePrefixes", ("resources",))))),
        tuple(sorted(transformations, key=lambda one: one.resource)),
        frozenset(map(str, frameworks)),
        frozen(classes),
    )
