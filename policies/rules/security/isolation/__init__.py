"""Accelerator pods do on their node what their work needs, and no more.

## What it does

Finds in pods that ask for accelerators what undoes the separation of containers, outside of what the policy allows. Each
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
| `MayRunAsRoot` | nothing keeps a container from running as root (`runAsNonRoot`) | restricted: Running as Non-root |

The last three wait for a parameter: each is left alone (`Ignore`), warned about (`Report`), or written where nothing is stated
(`Write`), and then refused where it is missing or the opposite is stated. A user id is written for images that `users` lists,
since only who builds an image knows what it runs as; other images are left alone. `allowPrivilegeEscalation: false` is not
written beside `privileged: true` or `SYS_ADMIN`, which the API refuses.

By default it only warns of the first seven and writes nothing. AppArmor, SELinux, sysctls, host probes and types of volumes are Pod
Security's alone; a namespace under its `baseline` or `restricted` refuses them for every pod, with or without gpugate
([isolation](../guide/isolation.md)).

## Why

GPU pods share the driver in their node's kernel, and a driver's fault is open to whoever may call it as root without a filter.
A privileged container has all GPUs of its node, whatever it asked for. The seccomp profile of the runtime may keep programs from
setting their memory policy (`set_mempolicy`, numactl) without the capability `SYS_NICE`: hence nothing is written until a
policy says so.

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
from gpugate.policies.rules.security.isolation.mutate import mutate
from gpugate.policies.rules.security.isolation.params import IsolationParams

REASONS: Final[dict[str, Reason]] = {
    "AddsCapabilities": Reason("A container adds capabilities that the policy does not list."),
    "HostNamespace": Reason("The pod shares the network, PID or IPC namespace of its node."),
    "HostPath": Reason("The pod mounts a directory of its node."),
    "HostPort": Reason("A container takes a port of its node."),
    "MayEscalate": Reason("A container may gain more privileges than its process started with.", action="privilege_escalation"),
    "MayRunAsRoot": Reason("Nothing keeps a container from running as root.", action="run_as_non_root"),
    "NoSeccomp": Reason("A container has no seccomp profile.", action="seccomp"),
    "Privileged": Reason("A container is privileged."),
    "Unconfined": Reason("A container runs without a seccomp filter."),
    "Unmasked": Reason("A container sees all of /proc."),
}


RULE = Rule(
    id="isolation",
    title="Accelerator pods do on their node what their work needs, and no more",
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
    default_max_mode=Mode.WARN,
    default_mode_reason=(
        "Clusters with RDMA or their own runtimes need some of what it finds, so that a policy has to allow that first."
    ),
)
