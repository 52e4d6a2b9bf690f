"""Parse and write PEM; every problem becomes one clear error."""

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

from gpugate.certs.errors import CertificateError

_UNREADABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def load_certificates(pem: bytes, place: object) -> tuple[x509.Certificate, ...]:
    """Parse every certificate of a PEM text, in order; other blocks are skipped.

    `place` names the input in the error.

    Raises:
        CertificateError: there is no certificate or one is damaged.
    """
    try:
        certificates = tuple(x509.load_pem_x509_certificates(pem))
        for certificate in certificates:
            _parse_lazy_fields(certificate)
    except _UNREADABLE:
        raise CertificateError(
            place=place,
            problem="holds no readable PEM certificate",
            remedy="give a file with '-----BEGIN CERTIFICATE-----' blocks, or move it away and issue a new one",
        ) from None
    return certificates


def load_key(pem: bytes, place: object) -> PrivateKeyTypes:
    """Parse one private key in PEM without a password.

    Raises:
        CertificateError: When it is damaged, encrypted or of an unknown kind.
    """
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except _UNREADABLE:
        raise CertificateError(
            place=place,
            problem="holds no readable PEM private key",
            remedy="give a key without password ('-----BEGIN PRIVATE KEY-----'), or move it away and issue a new one",
        ) from None


def dump_certificates(certificates: tuple[x509.Certificate, ...]) -> bytes:
    """Write the certificates as PEM, and nothing else."""
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def key_matches(certificate: x509.Certificate, key: PrivateKeyTypes) -> bool:
    """Return whether the private key belongs to the certificate."""
    return _spki(certificate.public_key()) == _spki(key.public_key())


def is_ca(certificate: x509.Certificate) -> bool:
    """Return whether BasicConstraints and KeyUsage allow signing certificates."""
    extensions = certificate.extensions
    try:
        basic = extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    try:
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:  # Without KeyUsage nothing is ruled out.
        return basic.ca
    return basic.ca and usage.key_cert_sign


def _parse_lazy_fields(certificate: x509.Certificate) -> None:
    """Read lazily parsed fields, so that damage shows here."""
    _ = certificate.extensions, certificate.public_key()
    _ = certificate.subject, certificate.issuer
    _ = certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _spki(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
