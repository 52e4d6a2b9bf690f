"""Check the configuration of NVIDIA's device plugin (``version: v1``), in a ConfigMap or by itself.

Source: NVIDIA k8s-device-plugin ``api/config/v1`` (``config.go``, ``sharing.go``, ``replicas.go``): parsing is not strict, so
that unknown fields are ignored silently; ``resources``, ``rename`` and ``devices`` are parsed and not used; fewer than two
replicas, and an unknown migStrategy, keep the plugin from starting.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from gpugate.policies.findings import Finding, Level
from gpugate.policies.kube.fields import Object, Path, type_name
from gpugate.policies.lint.context import LintContext, map_at, maps_at, text_at, texts_at

_FIELDS: Final = ("version", "flags", "resources", "sharing", "imex", "health")
_SHARING: Final = ("timeSlicing", "mps")
_STRATEGIES: Final = ("none", "single", "mixed")
_MIG: Final = "nvidia.com/mig-"
_FEWEST: Final = 2
#: Mark of a configuration in a text, and its largest length: a ConfigMap may hold anything.
_CONFIG_MARK: Final = re.compile(r"(?:sharing|flags)\"?\s*:")
_LONGEST: Final = 64 * 1024


def is_config(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    """Return whether ``value`` is a configuration of the device plugin."""
    return isinstance(value, dict) and value.get("version") == "v1" and any(name in value for name in ("sharing", "flags"))


def check(obj: Object, context: LintContext) -> Iterator[Finding]:
    """Check the configurations in a ConfigMap."""
    for key, text in sorted(texts_at(obj, "data").items()):
        if len(text) <= _LONGEST and _CONFIG_MARK.search(text) and is_config(config := context.read_yaml(text)):
            yield from check_config(("data", key), config)


def check_config(path: Path, config: Object) -> Iterator[Finding]:
    """Check a configuration at ``path``."""
    yield from _check_fields(path, config)
    strategy = map_at(config, "flags").get("migStrategy")
    if strategy is not None and strategy not in _STRATEGIES:
        message = f"migStrategy {strategy} does not exist, so the device plugin does not start"
        yield Finding("UnknownMigStrategy", (*path, "flags", "migStrategy"), message, f"Write one of {', '.join(_STRATEGIES)}.")
    sharing = map_at(config, "sharing")
    if "timeSlicing" in sharing and "mps" in sharing:
        message = "the configuration has both timeSlicing and mps, so the device plugin shares by MPS and ignores timeSlicing"
        yield Finding("TwoSharings", (*path, "sharing"), message, "Remove one of the two.", Level.WARN)
    for strategy_name in _SHARING:
        for at, resource in maps_at(sharing, strategy_name, "resources"):
            place = (*path, "sharing", strategy_name, "resources", at)
            yield from _check_resource(place, resource)
    if strategy == "single":
        yield from _check_single(path, sharing)


def _check_fields(path: Path, config: Object) -> Iterator[Finding]:
    for name in sorted(set(config) - set(_FIELDS)):
        message = f"the configuration has no field {name}, so the device plugin ignores it silently"
        yield Finding("UnknownField", (*path, name), message, f"Use the fields {', '.join(_FIELDS)} only.")
    for name in sorted(set(map_at(config, "sharing")) - set(_SHARING)):
        message = f"sharing has no field {name}, so the device plugin ignores it silently"
        remedy = f"Write {' or '.join(_SHARING)}."
        if name == "mig":
            remedy = "Remove mig: MIG devices keep the names that flags.migStrategy: mixed gives them (nvidia.com/mig-1g.5gb)."
        yield Finding("UnknownField", (*path, "sharing", name), message, remedy)
    if map_at(config, "resources"):
        message = "the device plugin ignores resources because it does not rename resources"
        yield Finding("NotUsed", (*path, "resources"), message, "Remove resources.", Level.WARN)


def _check_resource(path: Path, resource: Object) -> Iterator[Finding]:
    replicas = resource.get("replicas")
    if type(replicas) is not int or replicas < _FEWEST:
        shown = str(replicas) if type(replicas) is int else type_name(replicas)
        message = f"replicas is {shown} but must be {_FEWEST} or more, so the device plugin does not start and the node has no GPUs"
        yield Finding("TooFewReplicas", (*path, "replicas"), message, f"Write {_FEWEST} or more replicas, or remove the sharing.")
    for name in ("rename", "devices"):
        if name in resource and resource[name] != "all":
            message = f"the device plugin ignores {name} and shares all devices of a resource under the resource's own name"
            note = "; renameByDefault adds .shared to the name" if name == "rename" else ""
            yield Finding("NotUsed", (*path, name), message, f"Remove {name}{note}.", Level.WARN)


def _check_single(path: Path, sharing: Object) -> Iterator[Finding]:
    """Check for MIG resources with the single strategy; they exist with the mixed strategy only."""
    names = {text_at(resource, "name") for strategy in sharing for _, resource in maps_at(sharing, strategy, "resources")}
    profiles = sorted(name for name in names if name.startswith(_MIG))
    if profiles:
        message = f"migStrategy single provides every slice as nvidia.com/gpu, so {', '.join(profiles)} does not exist"
        remedy = "Write migStrategy: mixed, which provides each profile under its own name."
        yield Finding("NotServed", (*path, "flags", "migStrategy"), message, remedy)
