"""Alerts on GPUs: a PrometheusRule whose expressions say what they are meant to.

The expressions are not parsed: what is looked for are names of metrics, and two shapes that are wrong whatever stands around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpugate.policies.fields import Object, Path
from gpugate.policies.finding import Finding, Level
from gpugate.policies.setup.around import Around, maps_at, text_at
from gpugate.policies.setup.gpu_metrics import FREE, UNWRITTEN, USED, XID

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_TEXT: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_LABELS: Final = r"(?:\s*\{[^}]*\})?"
_USED_BY_FREE: Final = re.compile(
    rf"\b{USED}{_LABELS}\s*/\s*(?:(?:on|ignoring)\s*\([^)]*\)\s*)?{FREE}\b{_LABELS}(?:\s*>=?\s*(\d*\.?\d+))?"
)
_COUNTED: Final = re.compile(rf"\b(increase|rate|irate|delta|idelta|deriv)\s*\(\s*{XID}\b")


def check(obj: Object, _around: Around) -> Iterator[Finding]:
    """What the expressions of a PrometheusRule get wrong about GPUs."""
    for at, group in maps_at(obj, "spec", "groups"):
        for number, rule in maps_at(group, "rules"):
            expression = text_at(rule, "expr")
            if expression:
                yield from check_expression(("spec", "groups", at, "rules", number, "expr"), expression)


def check_expression(path: Path, expression: str) -> Iterator[Finding]:
    """What an expression gets wrong about GPUs."""
    bare = _TEXT.sub('""', expression)
    for name in sorted({found[0] for found in _NAME.finditer(bare)} & set(UNWRITTEN)):
        message = f"no exporter writes {name}: the expression is empty, and an alert on it never fires"
        yield Finding("UnwrittenMetric", path, message, UNWRITTEN[name].sentence)
    found = _USED_BY_FREE.search(bare)
    if found:
        yield _not_a_share(path, found[1])
    counted = _COUNTED.search(bare)
    if counted:
        message = (
            f"{XID} is a gauge that holds the number of the last Xid: {counted[1]}() subtracts numbers of errors from each other, "
            "and does not see the same error twice"
        )
        remedy = (
            f"Write {XID} != 0, which holds until the driver is loaded anew, or DCGM_EXP_XID_ERRORS_COUNT > 0, which dcgm-exporter "
            "writes where it is configured to."
        )
        yield Finding("GaugeCounted", path, message, remedy, Level.WARN)


def _not_a_share(path: Path, threshold: str | None) -> Finding:
    message = f"{USED} / {FREE} is not the share that is used: it is 1 at half, and has no upper bound"
    if threshold:
        bound = float(threshold)
        message += f"; above {threshold} it fires from {bound / (1 + bound):.0%} used"
    remedy = f"Write {USED} / ({USED} + {FREE})."
    return Finding("NotAShare", path, message, remedy, Level.WARN)
