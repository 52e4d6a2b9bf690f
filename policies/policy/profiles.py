"""Profiles of a GPUPolicy: named defaults of every rule, as Pod Security Standards have them, by version.

A profile is what a policy could write itself below ``spec.rules``; what a policy states overrides it. ``mode`` in a profile is the
strongest mode of the rule where the policy does not name it.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

#: The profile of a policy that names none, and that of offline reviews without a policy.
DEFAULT: Final = "baseline"
OFFLINE: Final = "recommended"
#: A profile, with or without its version.
PATTERN: Final = r"^[a-z]+(@[1-9][0-9]{0,4})?$"


class ProfileError(ValueError):
    """A profile or version that does not exist; the message names those that do."""


class Profile(NamedTuple):
    """One version of a profile.

    Attributes:
        name: ``baseline``, ``recommended`` or ``strict``.
        version: counts from 1; a released version never changes.
        title: what it is for, a sentence for the reference.
        rules: settings by rule id, where they differ from the defaults of the rule.
    """

    name: str
    version: int
    title: str
    rules: Mapping[str, Mapping[str, Any]]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def _warns(*reasons: str) -> dict[str, str]:
    """Return the actions that make ``reasons`` warnings."""
    return dict.fromkeys(reasons, "Warn")


_BASELINE_1: Final = Profile(
    "baseline",
    1,
    "Refuses only what can never run, adds only what cannot hurt, and changes no stated amount.",
    MappingProxyType(
        {
            "object-size": {"mode": "Warn"},
            "accelerator-names": {"actions": _warns("UnservedName")},
            "vram": {"affinity": False, "noCardHolds": "Warn"},
            "queue": {"actions": _warns("QueueUnknown")},
            "host-memory": {
                "defaultLimits": "Never",
                "missingLimit": "Warn",
                "actions": _warns("MemoryVolumesExceedLimit", "Overcommit", "SharedMemoryExceedsLimit"),
            },
            "shared-memory": {"actions": _warns("NotMounted")},
            "gang": {
                "fragments": "Allow",
                "oneByOne": "Warn",
                "actions": {
                    "CompletionsNotParallelism": "Allow",
                    **_warns("GangNameMissing", "PartialStart", "Shrinks", "SizeMismatch", "SizeUnreadable", "Splits"),
                },
            },
            "gang-members": {
                "priority": "Warn",
                "actions": _warns(
                    *("AsksDiffer", "GangOver", "GangRuns", "MixedCapacity", "NeverEnough", "OneTooMany", "PartialStart"),
                    *("QueueDiffers", "SizeDiffers"),
                ),
            },
            "gang-packing": {"poolTooSmall": "Warn", "domainTooSmall": "Warn", "mixedCapacity": "Allow"},
            "namespace-limits": {"gangInPart": "Warn"},
            "stranding": {"actions": _warns("StrandsAccelerators")},
            "commitment": {"actions": _warns("LimitAboveRatio")},
            "visible-devices": {
                "actions": _warns("MountsDeviceList", "MountsDevices", "NamesDevices", "TakesDevices", "TakesMoreDevices")
            },
        }
    ),
)
_RECOMMENDED_1: Final = Profile(
    "recommended",
    1,
    "Also fills in memory limits, aligns pods to NUMA zones, and refuses oversubscription and gangs that could start only in part.",
    MappingProxyType(
        {
            "stranding": {"actions": _warns("StrandsAccelerators")},
            "commitment": {"refuse": True},
        }
    ),
)
_STRICT_1: Final = Profile(
    "strict",
    1,
    "Also refuses pods that leave GPUs of a node unused, and what the rules of good practice warn of.",
    MappingProxyType(
        {
            **{rule: {"mode": "Enforce"} for rule in ("images", "isolation", "jobs", "reserved-nodes", "spot")},
            "commitment": {"refuse": True},
            "gang": {"fragments": "Deny", "actions": {"CompletionsNotParallelism": "Deny"}},
            "gang-packing": {"mixedCapacity": "Deny"},
            "visible-devices": {"imagesElsewhere": "Deny"},
        }
    ),
)
#: Every version of every profile, the weakest profile first, then by version.
PROFILES: Final = (_BASELINE_1, _RECOMMENDED_1, _STRICT_1)
NAMES: Final = tuple(dict.fromkeys(profile.name for profile in PROFILES))


def profile_of(text: str) -> Profile:
    """Return the profile ``name`` in its latest version, or ``name@version``.

    Raises:
        ProfileError: there is no such profile or version.
    """
    name, _, version = text.partition("@")
    versions = [profile for profile in PROFILES if profile.name == name]
    if not versions or re.match(PATTERN, text) is None:
        message = f"{text!r:.60} is no profile: name one of {', '.join(NAMES)}, with or without a version ({PROFILES[0]})"
        raise ProfileError(message)
    chosen = [profile for profile in versions if str(profile.version) == version] if version else versions
    if not chosen:
        known = ", ".join(map(str, versions))
        message = f"{text!r:.60} is no version of that profile: name {known}, or {name} for the latest"
        raise ProfileError(message)
    return chosen[-1]
