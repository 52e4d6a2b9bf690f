"""Every rule, in the order in which their edits are folded.

What the pods tolerate decides which cards they may be given, and the affinity that keeps them off small cards decides of which
nodes they get a share. The queue comes before the resources that are put in, since its quota may not cover them; memory limits
come before the shared memory that is sized from them, and Guaranteed quality of service between the two, since it raises
requests and not limits.
"""

from __future__ import annotations

from typing import Final

from gpugate.policies.rule import Rule
from gpugate.policies.rules import (
    accelerator_names,
    attribution,
    commitment,
    environment,
    gang,
    gang_members,
    gang_packing,
    host_memory,
    idle,
    images,
    isolation,
    jobs,
    namespace_limits,
    node_terms,
    numa,
    placement,
    priority,
    queue,
    queue_quota,
    reserved_nodes,
    shared_memory,
    spot,
    spread,
    stranding,
    tolerations,
    visible_devices,
    vram,
)

RULES: Final[tuple[Rule, ...]] = (
    accelerator_names.RULE,
    attribution.RULE,
    placement.RULE,
    spot.RULE,
    tolerations.RULE,
    vram.RULE,
    priority.RULE,
    queue.RULE,
    host_memory.RULE,
    numa.RULE,
    shared_memory.RULE,
    spread.RULE,
    jobs.RULE,
    images.RULE,
    isolation.RULE,
    gang.RULE,
    gang_members.RULE,
    gang_packing.RULE,
    queue_quota.RULE,
    namespace_limits.RULE,
    stranding.RULE,
    commitment.RULE,
    visible_devices.RULE,
    reserved_nodes.RULE,
    environment.RULE,
    node_terms.RULE,
    idle.RULE,
)

BY_ID: Final[dict[str, Rule]] = {rule.id: rule for rule in RULES}
