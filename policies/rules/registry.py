"""Every rule, in the order in which their edits are folded.

What the pods tolerate decides which cards they may be given, and the affinity that keeps them off small cards decides of which
nodes they get a share. The queue comes before the resources that are put in, since its quota may not cover them; memory limits
come before the shared memory that is sized from them, and Guaranteed quality of service between the two, since it raises
requests and not limits.
"""

from __future__ import annotations

from typing import Final

from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.gangs.gang import rule as gang
from gpugate.policies.rules.gangs.gang_members import rule as gang_members
from gpugate.policies.rules.gangs.gang_packing import rule as gang_packing
from gpugate.policies.rules.lifecycle import images
from gpugate.policies.rules.lifecycle.environment import rule as environment
from gpugate.policies.rules.lifecycle.jobs import rule as jobs
from gpugate.policies.rules.ownership import idle
from gpugate.policies.rules.ownership.attribution import rule as attribution
from gpugate.policies.rules.placement import tolerations
from gpugate.policies.rules.placement.gpu_selection import rule as placement
from gpugate.policies.rules.placement.node_terms import rule as node_terms
from gpugate.policies.rules.placement.spot import rule as spot
from gpugate.policies.rules.placement.spread import rule as spread
from gpugate.policies.rules.queueing import namespace_limits, queue, queue_quota
from gpugate.policies.rules.queueing.priority import rule as priority
from gpugate.policies.rules.resources import accelerator_names, commitment, shared_memory, stranding
from gpugate.policies.rules.resources.host_memory import rule as host_memory
from gpugate.policies.rules.resources.numa import rule as numa
from gpugate.policies.rules.resources.vram import rule as vram
from gpugate.policies.rules.security import reserved_nodes, visible_devices
from gpugate.policies.rules.security.isolation import rule as isolation

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
