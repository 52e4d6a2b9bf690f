import pytest

from gpugate.certs.inspect import CertificateError
from gpugate.certs.names import normalize, uncovered


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["GPUgate.System.svc"], ("gpugate.system.svc",)),
        (["b", "a", "b"], ("b", "a")),
        (["*.system.svc"], ("*.system.svc",)),
        (["10.0.0.1"], ("10.0.0.1",)),
        (["2001:DB8:0::1"], ("2001:db8::1",)),
        ("localhost", ("localhost",)),
    ],
)
def test_names_come_in_one_form_and_once(given: list[str], wanted: tuple[str, ...]) -> None:
    assert normalize(given) == wanted


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "https://gpugate.svc",
        "gpugate.svc:8443",
        "gpugate.svc.",
        "-gpugate",
        "gpu_gate",
        "a.*.svc",
        "*",
        "300.1.1.1",
        "fe80::1%eth0",
        "bücher.example",
        "a" * 64,
        ".".join(["a" * 63] * 4),
        "gpugate\n",
    ],
)
def test_a_name_that_no_certificate_can_carry_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(CertificateError, match="neither a DNS name nor an IP") as error:
        normalize(["good.svc", name])
    assert repr(name) in str(error.value)
    assert "\n" not in str(error.value)


def test_no_name_at_all_is_refused() -> None:
    with pytest.raises(CertificateError, match="there is none"):
        normalize([])


@pytest.mark.parametrize(
    ("name", "sans", "covered"),
    [
        ("a.svc", ["A.svc"], True),
        ("a.svc", ["*.svc"], True),
        ("b.a.svc", ["*.svc"], False),
        ("svc", ["*.svc"], False),
        ("*.svc", ["*.svc"], True),
        ("*.svc", ["a.svc"], False),
        ("10.0.0.1", ["10.0.0.1"], True),
        ("10.0.0.1", ["*.0.0.1"], False),
    ],
)
def test_a_wildcard_covers_exactly_one_label(name: str, sans: list[str], *, covered: bool) -> None:
    assert (uncovered([name], sans) == ()) is covered
