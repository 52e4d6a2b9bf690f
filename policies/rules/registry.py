"""All rules, in the order in which their edits are applied.

``Rule.after`` names the rules whose edits a rule needs; a test compares it with the order. Tolerations select the cards of pods,
and the affinity that excludes small cards selects the nodes of which they get a share. The queue comes before default resources,
since its quota may not cover them. Memory limits come before shared memory, whose size depends on them; Guaranteed quality of
service comes between the two, since it raises requests and not limits.
"""

from typing import Final

from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.gangs import gang, gang_members, gang_packing
from gpugate.policies.rules.lifecycle import environment, images, jobs
from gpugate.policies.rules.ownership import attribution, idle
from gpugate.policies.rules.placement import gpu_selection, node_terms, spot, spread, tolerations
from gpugate.policies.rules.queueing import namespace_limits, priority, queue, queue_quota
from gpugate.policies.rules.resources import accelerator_names, commitment, host_memory, numa, shared_memory, stranding, vram
from gpugate.policies.rules.security import isolation, object_size, reserved_nodes, visible_devices

RULES: Final[tuple[Rule, ...]] = (
    object_size.RULE,
    accelerator_names.RULE,
    attribution.RULE,
    gpu_selection.RULE,
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

#: Fields that edits of rules write in pod templates and the specs around them, without metadata.
WRITTEN_FIELDS: Final = frozenset().union(*(rule.writes for rule in RULES)) - {"annotations", "labels"}
#: Fields of which rules read whether a user set them.
USER_SET_FIELDS: Final = frozenset().union(*(rule.reads_user_set for rule in RULES))
#: Environment variables that rules read; a ``*`` at the end stands for any characters.
READ_VARIABLES: Final = frozenset().union(*(rule.reads_variables for rule in RULES))
