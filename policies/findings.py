"""Findings: the results of a check, with their calculation and remedy."""

import enum
from collections.abc import Mapping
from typing import NamedTuple, Self

from gpugate.policies.kube.fields import Path, dotted


class Level(enum.Enum):
    """Weight of a finding before the rule's mode applies."""

    DENY = "deny"
    WARN = "warn"
    UNKNOWN = "unknown"


class Severity(enum.Enum):
    """Effect of a finding on the object under the rule's mode."""

    DENY = "deny"
    WARN = "warn"
    DRYRUN = "dryrun"
    UNKNOWN = "unknown"


class Mode(enum.Enum):
    """Mode of a rule (``Disabled``, not ``Off``: YAML 1.1 reads that as a boolean)."""

    ENFORCE = "Enforce"
    MUTATE = "Mutate"
    WARN = "Warn"
    DRY_RUN = "DryRun"
    DISABLED = "Disabled"

    def at_most(self, limit: "Mode") -> "Mode":
        """Return the weaker of the two modes: Disabled is the weakest, then DryRun, Warn, Mutate and Enforce."""
        return max(self, limit, key=list(Mode).index)

    @property
    def is_rehearsed(self) -> bool:
        """Whether a rule in this mode leaves the object alone, and gpugate only says or records what it would do."""
        return self is Mode.WARN or self is Mode.DRY_RUN


class Finding(NamedTuple):
    """A report of a rule about one field.

    Attributes:
        reason: a stable CamelCase word for machines.
        path: the field.
        message: what is wrong, with the calculation.
        remedy: what to write instead, a sentence.
        level: its weight.
        measure: severity in the finding's own unit; an UPDATE is denied only if it rises.
        rests_on: resource names of the facts that it depends on (``nodes``); if those are out of date, the finding is uncertain.
        names: names in its texts that a user of the object's namespace may not see: of cohorts and other namespaces. The webhook
            leaves these out, and the names of nodes, where it does not know who asks.
    """

    reason: str
    path: Path
    message: str
    remedy: str
    level: Level = Level.DENY
    measure: int = 0
    rests_on: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def as_warning(self) -> Self:
        """Return the finding, as a warning if it is a denial."""
        return self._replace(level=Level.WARN) if self.level is Level.DENY else self

    def as_denial(self) -> Self:
        """Return the finding, as a denial if it is unknown."""
        return self._replace(level=Level.DENY) if self.level is Level.UNKNOWN else self


def not_synced(reason: str, path: Path, kinds: str, what: str) -> Finding:
    """Return the finding for facts of ``kinds`` (``the nodes``) that are not synced yet; ``what`` (``whether ...``) is unknown."""
    message = f"{kinds} are not synced yet, so gpugate cannot tell {what}"
    return Finding(reason, path, message, "Try again in a few seconds.", Level.UNKNOWN)


class Judged(NamedTuple):
    """A finding of a rule, with its severity under the rule's mode.

    ``would_refuse``: the rule, in Warn or DryRun, would deny the object if its policy were enforced.
    """

    rule: str
    severity: Severity
    finding: Finding
    would_refuse: bool = False

    @property
    def sort_key(self) -> tuple[str, str, str, str]:
        """The order of findings in a list: the same input gives the same text."""
        return (self.rule, dotted(self.finding.path), self.finding.reason, self.finding.message)


def aged(finding: Finding, stale: Mapping[str, int]) -> Finding:
    """Return ``finding``, uncertain and with the age of its facts if they are ``stale`` (minutes by resource)."""
    resources = [resource for resource in sorted(finding.rests_on) if resource in stale]
    if not resources:
        return finding
    ages = ", ".join(f"{name} as of {stale[name]} minute{'s' if stale[name] != 1 else ''} ago" for name in resources)
    level = Level.UNKNOWN if finding.level is Level.DENY else finding.level
    return finding._replace(message=f"{finding.message} ({ages}: the watch is broken)", level=level)


def judge(rule: str, mode: Mode, finding: Finding, *, refuse_unknown: bool = False, forecast: Mode = Mode.ENFORCE) -> Judged:
    """Return ``finding`` of ``rule`` with the severity of the rule's ``mode``.

    ``refuse_unknown``: deny it if it is unknown; ``forecast``: the mode of the rule if its policy were enforced.
    """
    denies = finding.level is Level.DENY or (refuse_unknown and finding.level is Level.UNKNOWN)
    would_refuse = denies and mode.is_rehearsed and forecast is Mode.ENFORCE
    if mode is Mode.DRY_RUN:
        severity = Severity.DRYRUN
    elif denies and mode is Mode.ENFORCE:
        severity = Severity.DENY
    else:
        severity = Severity.UNKNOWN if finding.level is Level.UNKNOWN else Severity.WARN
    return Judged(rule, severity, finding, would_refuse)
