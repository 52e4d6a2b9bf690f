"""Images of accelerator pods are the same on every node, from registries that are known, and not asked for needlessly.

## What it does

Reads the image of every container, init containers included, of pods that ask for accelerators. Without parameters it writes
nothing, and warns of an image in a gang whose tag moves (`latest`, or none) and of parts of a gang with different tags of the
same image; of `imagePullPolicy: Always` on an image whose tag is pinned; and refuses a reference that no runtime can read.

Where the policy asks for it: digests, in gangs or everywhere; registries that images may come from; large images named, with
what pulling them cold comes to; references rewritten to a mirror of their registry; and `Always` made `IfNotPresent`, in
templates alone: on pods the apiserver's AlwaysPullImages insists on it. Both overwrite what is stated. In a template that Git
or an operator keeps they are left undone, with the line to commit; the pods that are made from it get the mirror all the same.

What nodes have pulled already is not looked at, nor are volumes of type `image`.

## Why

Nodes pull the same moving tag at different times: the workers of one run then have different code, and hang or diverge. A
digest cannot move. `Always` does not pull layers again that the node has: it asks the registry at every start of a container
what the tag means, and no pod starts while the registry does not answer. A tag that moves is pulled anew, all of it that
changed, by every node. An image of 20GiB that eight nodes pull at once keeps 64 accelerators waiting.

## Practice

- Field guide, "What we learned the hard way": large images are on the nodes before the job, from a registry within the cluster.
- Orchestration guide, "Image Security": only images that somebody vouches for run.
- Orchestration guide, "Distributed Training Hangs": every node runs the same versions of CUDA and NCCL.

## Example

With `mirrors: [{from: docker.io, to: mirror.example.com/docker.io}]`, `image: pytorch/pytorch:2.7.1` becomes:

```yaml
image: mirror.example.com/docker.io/pytorch/pytorch:2.7.1
```
"""

from typing import Final

from gpugate.policies.findings import Mode
from gpugate.policies.framework.reasons import Reason
from gpugate.policies.framework.rule import Rule
from gpugate.policies.rules.lifecycle.images.checks import check
from gpugate.policies.rules.lifecycle.images.mutate import mutate
from gpugate.policies.rules.lifecycle.images.params import ImagesParams

REASONS: Final[dict[str, Reason]] = {
    "AskedEveryTime": Reason("Every start needs the registry, for an image that does not change.", action="always"),
    "DigestMissing": Reason("The image has no digest, and the policy requires one."),
    "ImageMoves": Reason("The tag moves, so nodes may run different images.", action="moving"),
    "ImageUnreadable": Reason("The image reference does not parse."),
    "ImagesDiffer": Reason("Parts of one gang run different tags of one image.", action="Warn"),
    "LargeImage": Reason("The image is large, and GPUs wait while a node pulls it.", action="Warn"),
    "RegistryNotAllowed": Reason("The image comes from a registry that the policy does not list."),
}


RULE = Rule(
    id="images",
    title="Images of accelerator pods are the same on every node, from known registries, and not asked for needlessly",
    since="0.1.0",
    params=ImagesParams,
    reasons=REASONS,
    mutate=mutate,
    check=check,
    reads=frozenset({"annotations", "image", "imagePullPolicy"}),
    writes=frozenset({"image", "imagePullPolicy"}),
    documentation=__doc__,
    default_max_mode=Mode.WARN,
    default_mode_reason="Some teams work with tags that move and know it, and which registries they trust nobody else can say.",
)
