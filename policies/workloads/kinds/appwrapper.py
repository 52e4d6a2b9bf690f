"""The kind of AppWrapper.

Sources: AppWrapper v1.1: API types, ``pkg/utils``.
"""

from typing import Final

from gpugate.policies.workloads.kinds.model import WorkloadKind

APP_WRAPPER: Final = WorkloadKind(
    "workload.codeflare.dev",
    "AppWrapper",
    "appwrappers",
    (),
    versions=("v1beta2",),
    template_mutable=False,
    wraps=("spec", "components"),
    controller="workload.codeflare.dev/appwrapper",
    managed_by=("spec", "managedBy"),
    suspend=("spec", "suspend"),
    running=(("status", "phase"),),
    groups_itself=True,
    framework="workload.codeflare.dev/appwrapper",
)
