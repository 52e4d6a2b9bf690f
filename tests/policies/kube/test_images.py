"""Reading references to images."""

from __future__ import annotations

import pytest

from gpugate.policies.kube.images import Image, read_image

_DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("nginx", Image("docker.io/library/nginx", "", "")),
        ("nginx:1.28", Image("docker.io/library/nginx", "1.28", "")),
        ("docker.io/nginx", Image("docker.io/library/nginx", "", "")),
        ("index.docker.io/pytorch/pytorch:2.7", Image("docker.io/pytorch/pytorch", "2.7", "")),
        ("pytorch/pytorch:2.7", Image("docker.io/pytorch/pytorch", "2.7", "")),
        ("team/project/app", Image("docker.io/team/project/app", "", "")),
        ("localhost/app", Image("localhost/app", "", "")),
        ("registry.example.com:5000/ml/app", Image("registry.example.com:5000/ml/app", "", "")),
        ("registry:5000/app:1", Image("registry:5000/app", "1", "")),
        ("host:5000", Image("docker.io/library/host", "5000", "")),
        ("[::1]:5000/app:1", Image("[::1]:5000/app", "1", "")),
        ("REGISTRY/app", Image("REGISTRY/app", "", "")),
        (f"nvcr.io/nvidia/pytorch@{_DIGEST}", Image("nvcr.io/nvidia/pytorch", "", _DIGEST)),
        (f"nvcr.io/nvidia/pytorch:25.06-py3@{_DIGEST}", Image("nvcr.io/nvidia/pytorch", "25.06-py3", _DIGEST)),
    ],
)
def test_a_reference_is_read_as_the_container_runtime_reads_it(written: str, wanted: Image) -> None:
    assert read_image(written) == wanted


@pytest.mark.parametrize(
    "written",
    [
        "",
        " nginx",
        "nginx:",
        ":1",
        "a//b",
        "app/Train",
        "nginx@sha256:abc",
        f"nginx@{_DIGEST}0",
        "nginx:-1",
        "-a/b.c/d:x:y",
        "x" * 700,
    ],
)
def test_what_no_runtime_could_pull_is_no_reference(written: str) -> None:
    assert read_image(written) is None


def test_a_tag_counts_where_no_digest_decides() -> None:
    assert [image.effective_tag for name in ("a", "a:1", f"a:1@{_DIGEST}") if (image := read_image(name))] == ["latest", "1", ""]


def test_a_prefix_is_a_whole_name_or_a_folder() -> None:
    image = read_image("registry.example.com/ml/train:1")
    assert image is not None
    assert [
        image.is_below(one) for one in ("registry.example.com", "registry.example.com/ml", "registry.example.com/ml/train")
    ] == [
        True,
        True,
        True,
    ]
    assert not image.is_below("registry.example.com/m")
