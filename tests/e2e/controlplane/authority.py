"""The certificate authority of one run, and the certificates it issues."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LIFETIME = datetime.timedelta(days=1)
LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its private key, in PEM files named as in a Secret of type kubernetes.io/tls."""

    cert: Path
    key: Path
    ca: Path

    def embedded(self) -> tuple[str, str]:
        """Certificate and key in base64, as a kubeconfig embeds them."""
        return base64.b64encode(self.cert.read_bytes()).decode(), base64.b64encode(self.key.read_bytes()).decode()


class Authority:
    """A CA with ECDSA P-256 keys, whose files live under one folder."""

    def __init__(self, folder: Path) -> None:
        """Make a new CA; its certificate is `<folder>/ca.crt`."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpugate-e2e")])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def ca_bundle(self) -> str:
        """The CA certificate in base64, as a webhook's clientConfig wants it."""
        return base64.b64encode(self.ca_file.read_bytes()).decode()

    def serving(self, name: str, hosts: Sequence[str] = LOOPBACK) -> CertificateFiles:
        """Issue a serving certificate for these host names and addresses, into `<folder>/<name>/tls.{crt,key}`."""
        return self._issue(name, [x509.NameAttribute(NameOID.COMMON_NAME, name)], ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def client(self, name: str, user: str, groups: Sequence[str] = ()) -> CertificateFiles:
        """Issue a client certificate: to the apiserver, CN is the user and every O a group."""
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(name, subject, ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def signing_key(self, name: str) -> Path:
        """Make a bare private key, such as the one that signs service account tokens."""
        path = self.folder / f"{name}.key"
        _write_key(path, ec.generate_private_key(ec.SECP256R1()))
        return path

    def _issue(
        self, name: str, subject: list[x509.NameAttribute[str]], usage: x509.ObjectIdentifier, hosts: Sequence[str]
    ) -> CertificateFiles:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        # One relative name per attribute: Go reads only the first group of a multi-valued one.
        builder = (
            _builder(x509.Name(subject), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False)
        files = CertificateFiles(folder / "tls.crt", folder / "tls.key", self.ca_file)
        files.cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        _write_key(files.key, key)
        return files


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    # SEC 1, not PKCS 8: the apiserver takes the public half of a service account key only from the former.
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    )
