"""Accelerator pods may do on their node what their work needs, and no more.

## What it does

Finds settings of pods with accelerators that undo the separation of containers and that the policy does not allow. Each
corresponds to a control of the Pod Security Standards:

| Reason | What | Control |
| --- | --- | --- |
| `Privileged` | a privileged container | baseline: Privileged Containers |
| `HostNamespace` | `hostNetwork`, `hostPID`, `hostIPC` | baseline: Host Namespaces |
| `HostPath` | a hostPath volume | baseline: HostPath Volumes |
| `HostPort` | a port of the host | baseline: Host Ports |
| `AddsCapabilities` | an added capability beyond baseline's and `IPC_LOCK`, which RDMA needs | baseline: Capabilities |
| `Unmasked` | `procMount: Unmasked` | baseline: /proc Mount Type |
| `Unconfined` | seccomp `Unconfined` | baseline: Seccomp |
| `NoSeccomp` | no seccomp profile (`seccomp`) | restricted: Seccomp |
| `MayEscalate` | `allowPrivilegeEscalation` not false (`privilegeEscalation`) | restricted: Privilege Escalation |
| `MayRunAsRoot` | nothing prevents a container from running as root (`runAsNonRoot`) | restricted: Running as Non-root |

A parameter controls each of the last three: gpugate leaves it alone (`Ignore`), warns about it (`Report`), or writes it if the pod
states nothing (`Write`) and then refuses a pod that lacks it or states the opposite. gpugate writes a user id only for images that
`users` lists, since only the builder of an image knows what it runs as. It does not write `allowPrivilegeEscalation: false` beside
`privileged: true` or `SYS_ADMIN`, since the API rejects the pair.

By default the rule only warns about the first seven and writes nothing. It leaves AppArmor, SELinux, sysctls, host probes and
types of volumes to Pod Security, whose `baseline` and `restricted` refuse them for every pod ([isolation](../guide/isolation.md)).

## Why

GPU pods share the driver in their node's kernel, and a process that calls it as root without a filter can exploit its faults.
A privileged container has all GPUs of its node, however many it requests. The runtime's seccomp profile may prevent programs from
setting their memory policy (`set_mempolicy`, numactl) without `SYS_NICE`, so gpugate writes nothing until a policy says so.

## Practice

- Field guide, "What we learned the hard way": no root in GPU containers, a dedicated user id and a seccomp profile.

## Example

With `seccomp`, `privilegeEscalation` and `runAsNonRoot` at `Write`, and
`users: [{image: "registry.example.com/train*", user: 10001}]`:

```yaml
spec:
  securityContext:
    seccompProfile: {type: RuntimeDefault}
  containers:
    - image: registry.example.com/train:1
      securityContext:
        allowPrivilegeEscalation: false
        runAsNonRoot: true
        runAsUser: 10001
```
"""

from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.security.isolation.checks import check
from gpugate.policies.rules.security.isolation.mutate import IsolationParams, mutate

REASONS: Final[dict[str, Reason]] = {
    "AddsCapabilities": Reason("A container adds capabilities that the policy does not list."),
    "HostNamespace": Reason("The pod shares the network, PID or IPC namespace of its node."),
    "HostPath": Reason("The pod mounts a directory of its node."),
    "HostPort": Reason("A container uses a port of its node."),
    "MayEscalate": Reason("A container may gain more privileges than its process started with.", action="privilege_escalation"),
    "MayRunAsRoot": Reason("Nothing prevents a container from running as root.", action="run_as_non_root"),
    "NoSeccomp": Reason("A container has no seccomp profile.", action="seccomp"),
    "Privileged": Reason("A container is privileged."),
    "Unconfined": Reason("A container runs without a seccomp filter."),
    "Unmasked": Reason("A container sees all of /proc."),
}


RULE = Rule(
    id="isolation",
    title="Accelerator pods may do on their node what their work needs, and no more",
    since="0.1.0",
    params=IsolationParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    reads=frozenset(
        {"hostIPC", "hostNetwork", "hostPID", "image", "ports", "securityContext", "serviceAccountName", "volumeMounts", "volumes"}
    ),
    writes=frozenset({"securityContext"}),
    documentation=__doc__,
    default_max_mode=Mode.MUTATE,
    default_mode_reason=(
        "Clusters with RDMA or their own runtimes need some of the settings that it finds, so a policy has to allow them first."
    ),
)
