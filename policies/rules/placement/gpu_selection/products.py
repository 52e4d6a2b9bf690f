"""NVIDIA's GPU products by short names.

``nvidia.com/gpu.product`` is the driver's name of the GPU, with dashes for blanks, and only letters, digits, ``-``,
``_`` and ``.`` (k8s-device-plugin v0.20.0, ``internal/lm/resource.go``). The names are those of the driver's own table
(open-gpu-kernel-modules 595.45.04, ``src/nvidia/generated/g_nv_name_released.h``), which begins with Turing, and those of V100s in
earlier drivers. Time-sliced GPUs have the suffix ``-SHARED``, slices under MIG's single strategy ``-MIG-<profile>``.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from gpugate.policies.kube.cel import LONGEST_LABEL
from gpugate.policies.kube.memo import cached

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
_SHARED: Final = "-SHARED"
_SHARED_WORD: Final = "shared"
_MIG: Final = "mig"
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)

#: Label values by further words for them: the memory as the product is sold, and the form factor.
_PRODUCTS: Final = {
    "": (
        "NVIDIA-A100-80GB-PCIe NVIDIA-A100-PCIE-40GB NVIDIA-A100-SXM-64GB NVIDIA-A800-80GB-PCIe NVIDIA-GB200 "
        "NVIDIA-GB300 NVIDIA-GH200-120GB NVIDIA-GH200-480GB Tesla-V100-PCIE-16GB Tesla-V100-PCIE-32GB Tesla-V100S-PCIE-32GB"
    ),
    "141gb": "NVIDIA-H200-NVL",
    "141gb sxm": "NVIDIA-H200",
    "144gb": "NVIDIA-GH200-144G-HBM3e",
    "16gb": "NVIDIA-A16 NVIDIA-A2 Tesla-T4",
    "24gb": (
        "NVIDIA-A10 NVIDIA-A10G NVIDIA-A30 NVIDIA-GeForce-RTX-3090 NVIDIA-GeForce-RTX-4090 NVIDIA-L2 NVIDIA-L4 "
        "NVIDIA-RTX-A5000 Quadro-RTX-6000"
    ),
    "32gb": "NVIDIA-GeForce-RTX-5090",
    "48gb": "NVIDIA-A40 NVIDIA-L20 NVIDIA-L40 NVIDIA-L40S NVIDIA-RTX-6000-Ada-Generation NVIDIA-RTX-A6000 Quadro-RTX-8000",
    "80gb": "NVIDIA-H100-PCIe NVIDIA-H800-PCIe",
    "80gb sxm": "NVIDIA-H800",
    "94gb": "NVIDIA-H100-NVL",
    "96gb": "NVIDIA-H20 NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
    "sxm": (
        "NVIDIA-A100-SXM4-40GB NVIDIA-A100-SXM4-80GB NVIDIA-A800-SXM4-40GB NVIDIA-A800-SXM4-80GB NVIDIA-B200 "
        "NVIDIA-B300-SXM6-AC Tesla-V100-SXM2-16GB Tesla-V100-SXM2-32GB"
    ),
    "sxm sxm5": "NVIDIA-H100-80GB-HBM3",
}
_KNOWN: Final = {product: words for words, products in _PRODUCTS.items() for product in products.split()}


@cached(2048)
def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.split(r"[-_ ]", text.lower()) if word)


#: Words of known products that contain a digit and are neither memory nor form factor.
_SHORT_NAMES: Final = sorted(
    word
    for word in frozenset[str]().union(*map(_words, _KNOWN))
    if re.search(r"\d", word) and not re.fullmatch(r"\d+gb?|hbm\w+|sxm\d?|pcie|\d+", word, re.ASCII)
)


@cached(2048)
def _words_of(product: str) -> frozenset[str]:
    return _words(product) | frozenset(_KNOWN.get(product, "").split())


def is_name(text: str) -> bool:
    """Return whether ``text`` is a valid label value and not empty."""
    return len(text) <= LONGEST_LABEL and _NAME.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Return whether ``text`` looks like a product label and not like a short name: capitals, and several words."""
    return text != text.lower() and len(_words(text)) > 1


def products_called(name: str, on_nodes: Iterable[str], *, shared: bool) -> list[str]:
    """Return the values of the product label that ``name`` stands for, sorted: of known products, and of those on nodes.

    A product matches if it has all words of the name: ``h100`` is every H100, ``a100-80gb`` those of 80 GB. A name with ``shared``
    selects time-sliced GPUs, one with ``mig`` selects slices.

    Args:
        name: the name in the annotation.
        on_nodes: the label's values on nodes.
        shared: whether a name without ``shared`` selects time-sliced GPUs, too.
    """
    words = _words(name)
    base_words = words - {_SHARED_WORD}
    if not base_words:
        return []
    suffixes = [_SHARED] if _SHARED_WORD in words else ["", _SHARED] if shared else [""]
    products = {f"{product}{suffix}" for product in _KNOWN if base_words <= _words_of(product) for suffix in suffixes}
    for product in on_nodes:
        base = product.removesuffix(_SHARED)
        base_has = _words_of(base)
        if base_words <= base_has and product.removeprefix(base) in suffixes and (_MIG in words or _MIG not in base_has):
            products.add(product)
    return sorted(products)


def similar_names(name: str) -> list[str]:
    """Return short names of known products that ``name`` may be a misspelling of."""
    return get_close_matches(name.lower(), _SHORT_NAMES, n=3, cutoff=0.6)
