"""RuntimeClasses, DeviceClasses, and the devices of resource claims."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from gpugate.policies.cluster.records.common import Toleration, amounts, name_of, namespace_in, texts, tolerations_in
from gpugate.policies.kube.accelerators import GPU_DEVICE_CLASSES, SLICE_DEVICE_CLASSES
from gpugate.policies.kube.fields import Object, mapping, mappings


class RuntimeClass(NamedTuple):
    """A RuntimeClass: its overhead and scheduling.

    Attributes:
        overhead: ``overhead.podFixed`` by resource, in bytes, millicores or counts.
        node_selector: ``scheduling.nodeSelector``, merged into the pod's.
        tolerations: ``scheduling.tolerations``, added to the pod's.
    """

    name: str
    overhead: Mapping[str, int]
    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]


class DeviceClass(NamedTuple):
    """A DeviceClass of dynamic resource allocation.

    Attributes:
        extended_resource: the extended resource that it serves (``spec.extendedResourceName``); empty for none.
        drivers: drivers that its CEL selectors name in a comparison with ``device.driver``.
    """

    name: str
    extended_resource: str
    drivers: frozenset[str]

    @property
    def is_gpu(self) -> bool:
        """True if it is a GPU class by its name, or by NVIDIA's GPU driver."""
        return self.name in GPU_DEVICE_CLASSES or "gpu.nvidia.com" in self.drivers


class ClaimDevices(NamedTuple):
    """A ResourceClaim or ResourceClaimTemplate: the device classes that it requests."""

    namespace: str
    name: str
    classes: frozenset[str]

    @property
    def is_gpu(self) -> bool:
        """True if one of the classes is a GPU class by its name."""
        return not self.classes.isdisjoint(GPU_DEVICE_CLASSES)

    @property
    def may_be_slice(self) -> bool:
        """True if one of the classes may be a part of a GPU."""
        return not self.classes.isdisjoint(SLICE_DEVICE_CLASSES)


_DRIVER: Final = re.compile(r"device\.driver\s*==\s*[\"']([^\"']+)[\"']")


def runtime_class_of(obj: Object) -> RuntimeClass:
    """Return the record of a RuntimeClass (``node.k8s.io/v1``)."""
    scheduling = mapping(obj, "scheduling", ())
    return RuntimeClass(
        name_of(mapping(obj, "metadata", ())),
        amounts(mapping(obj, "overhead", ()), "podFixed"),
        texts(scheduling, "nodeSelector"),
        tolerations_in(scheduling, "tolerations"),
    )


def device_class_of(obj: Object) -> DeviceClass:
    """Return the record of a DeviceClass (``resource.k8s.io``, any version)."""
    spec = mapping(obj, "spec", ())
    drivers: set[str] = set()
    for selector in mappings(spec, "selectors", ("spec",)):
        drivers.update(_DRIVER.findall(str(mapping(selector, "cel", ()).get("expression") or "")))
    return DeviceClass(name_of(mapping(obj, "metadata", ())), str(spec.get("extendedResourceName") or ""), frozenset(drivers))


def claim_of(obj: Object) -> ClaimDevices:
    """Return the record of a ResourceClaim or ResourceClaimTemplate (``resource.k8s.io``, any version)."""
    metadata = mapping(obj, "metadata", ())
    spec, path = mapping(obj, "spec", ()), ("spec",)
    if obj.get("kind") == "ResourceClaimTemplate":
        spec, path = mapping(spec, "spec", path), ("spec", "spec")  # type: ignore[assignment]
    classes: set[str] = set()
    for request in mappings(mapping(spec, "devices", path), "requests", path):
        alternatives = mappings(request, "firstAvailable", path)
        names = (choice.get("deviceClassName") for choice in (request, mapping(request, "exactly", path), *alternatives))
        classes.update(name for name in names if isinstance(name, str))
    return ClaimDevices(namespace_in(metadata), name_of(metadata), frozenset(classes))
