"""NVIDIA's cards by the short names that people give them.

``nvidia.com/gpu.product`` is the name that the driver gives the card, blanks replaced by dashes and all but letters, digits, ``-``,
``_`` and ``.`` left out (k8s-device-plugin v0.20.0, ``internal/lm/resource.go``). The names are those of the driver's own table
(open-gpu-kernel-modules 595.45.04, ``src/nvidia/generated/g_nv_name_released.h``), which begins with Turing, and of V100s as the
drivers before it name them. Time-sliced cards have ``-SHARED`` behind it, slices under MIG's single strategy ``-MIG-<profile>``.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Final

PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
_SHARED: Final = "-SHARED"
_SHARED_WORD: Final = "shared"
_MIG: Final = "mig"
#: No label's value is longer.
_LONGEST: Final = 63
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)

#: Label values, and what people say of the card beside the words in it: its memory as it is sold, and its form.
_KNOWN: Final[Mapping[str, str]] = {
    "NVIDIA-A10": "24gb",
    "NVIDIA-A100-80GB-PCIe": "",
    "NVIDIA-A100-PCIE-40GB": "",
    "NVIDIA-A100-SXM-64GB": "",
    "NVIDIA-A100-SXM4-40GB": "sxm",
    "NVIDIA-A100-SXM4-80GB": "sxm",
    "NVIDIA-A10G": "24gb",
    "NVIDIA-A16": "16gb",
    "NVIDIA-A2": "16gb",
    "NVIDIA-A30": "24gb",
    "NVIDIA-A40": "48gb",
    "NVIDIA-A800-80GB-PCIe": "",
    "NVIDIA-A800-SXM4-40GB": "sxm",
    "NVIDIA-A800-SXM4-80GB": "sxm",
    "NVIDIA-B200": "sxm",
    "NVIDIA-B300-SXM6-AC": "sxm",
    "NVIDIA-GB200": "",
    "NVIDIA-GB300": "",
    "NVIDIA-GH200-120GB": "",
    "NVIDIA-GH200-144G-HBM3e": "144gb",
    "NVIDIA-GH200-480GB": "",
    "NVIDIA-GeForce-RTX-3090": "24gb",
    "NVIDIA-GeForce-RTX-4090": "24gb",
    "NVIDIA-GeForce-RTX-5090": "32gb",
    "NVIDIA-H100-80GB-HBM3": "sxm sxm5",
    "NVIDIA-H100-NVL": "94gb",
    "NVIDIA-H100-PCIe": "80gb",
    "NVIDIA-H20": "96gb",
    "NVIDIA-H200": "141gb sxm",
    "NVIDIA-H200-NVL": "141gb",
    "NVIDIA-H800": "80gb sxm",
    "NVIDIA-H800-PCIe": "80gb",
    "NVIDIA-L2": "24gb",
    "NVIDIA-L20": "48gb",
    "NVIDIA-L4": "24gb",
    "NVIDIA-L40": "48gb",
    "NVIDIA-L40S": "48gb",
    "NVIDIA-RTX-6000-Ada-Generation": "48gb",
    "NVIDIA-RTX-A5000": "24gb",
    "NVIDIA-RTX-A6000": "48gb",
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition": "96gb",
    "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition": "96gb",
    "Quadro-RTX-6000": "24gb",
    "Quadro-RTX-8000": "48gb",
    "Tesla-T4": "16gb",
    "Tesla-V100-PCIE-16GB": "",
    "Tesla-V100-PCIE-32GB": "",
    "Tesla-V100-SXM2-16GB": "sxm",
    "Tesla-V100-SXM2-32GB": "sxm",
    "Tesla-V100S-PCIE-32GB": "",
}


@lru_cache(maxsize=2048)
def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.split(r"[-_ ]", text.lower()) if word)


@cache
def _said_of(product: str) -> frozenset[str]:
    """What may be said of a known card."""
    return _words(product) | frozenset(_KNOWN[product].split())


def is_name(text: str) -> bool:
    """Whether ``text`` could name a card at all: it is a label's value, and says something."""
    return len(text) <= _LONGEST and _NAME.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether ``text`` is written as labels have it, not as people do: capitals, and more than one word."""
    return text != text.lower() and len(_words(text)) > 1


def products_called(name: str, found: Iterable[str], *, shared: bool) -> list[str]:
    """Values of the product's label that ``name`` means, sorted: those of known cards, and of those ``found`` on nodes.

    A card is meant where all words of the name are said of it, so ``h100`` is every H100 and ``a100-80gb`` those of 80 GB. Cards
    in shares of time are meant by a name with ``shared`` in it, and slices by one with ``mig``.

    Args:
        name: what somebody wrote.
        found: the label's values on nodes.
        shared: whether a name without ``shared`` means cards in shares, too.
    """
    words = _words(name)
    whole_words = words - {_SHARED_WORD}
    if not whole_words:
        return []
    ways = [_SHARED_WORD in words] if _SHARED_WORD in words or not shared else [False, True]
    meant = {
        f"{product}{_SHARED if way else ''}"
        for product in _KNOWN
        if whole_words <= _said_of(product)
        for way in ways
        if whole_words
    }
    for product in found:
        whole = product.removesuffix(_SHARED)
        said = _said_of(whole) if whole in _KNOWN else _words(whole)
        if whole_words <= said and (product != whole) in ways and (_MIG in words or _MIG not in said):
            meant.add(product)
    return sorted(meant)


def like(name: str) -> list[str]:
    """Short names of known cards that ``name`` may be a slip of."""
    return get_close_matches(name.lower(), _short_names(), n=3, cutoff=0.6)


@cache
def _short_names() -> list[str]:
    """The word of each known card that has a digit in it and says neither memory nor form."""
    noise = re.compile(r"\d+gb?|hbm\w+|sxm\d?|pcie|\d+", re.ASCII)
    found = {word for product in _KNOWN for word in _words(product) if re.search(r"\d", word) and not noise.fullmatch(word)}
    return sorted(found)
