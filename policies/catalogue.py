"""Every rule, in the order in which their edits are folded.

The queue comes before the resources that are put in, since its quota may not cover them; memory limits come before the shared
memory that is sized from them, and Guaranteed quality of service between the two, since it raises requests and not limits.
"""

from __future__ import annotations

from typing import Final

from gpugate.policies.rule import Rule
from gpugate.policies.rules import accelerator_names, gang, host_memory, numa, queue, shared_memory, tolerations

RULES: Final[tuple[Rule, ...]] = (
    accelerator_names.RULE,
    tolerations.RULE,
    queue.RULE,
    host_memory.RULE,
    numa.RULE,
    shared_memory.RULE,
    gang.RULE,
)

BY_ID: Final[dict[str, Rule]] = {rule.id: rule for rule in RULES}
