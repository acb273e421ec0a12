"""A certificate authority of its own for each cluster, and the kubeconfig that trusts it."""

from __future__ import annotations

import base64
import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFE = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Certificates:
    """All three in PEM."""

    authority: bytes
    serving: bytes
    key: bytes

    def server_context(self, directory: Path) -> ssl.SSLContext:
        """The key touches the disk only for as long as OpenSSL reads it, readable by its owner."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        descriptor, name = tempfile.mkstemp(dir=directory, suffix=".pem")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(self.serving + self.key)
            context.load_cert_chain(name)
        finally:
            Path(name).unlink()
        return context


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def issue(hosts: list[str], now: datetime) -> Certificates:
    """A new authority, and a serving certificate for loopback, in-cluster names and `hosts` (names or addresses)."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    begin, end = now - timedelta(minutes=5), now + _LIFE
    authority_name = _name("wainwright-embedded-ca")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        x509.CertificateBuilder(authority_name, authority_name, authority_key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.DNSName("kubernetes"), x509.DNSName("kubernetes.default.svc")]
    serving = (
        x509.CertificateBuilder(authority_name, _name("kube-apiserver"), key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .add_extension(x509.SubjectAlternativeName([*names, *_hosts(hosts)]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return Certificates(
        authority.public_bytes(serialization.Encoding.PEM),
        serving.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _hosts(hosts: list[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for host in dict.fromkeys(["127.0.0.1", "::1", "10.96.0.1", *hosts]):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            found.append(x509.DNSName(host))
    return found


def kubeconfig(server: str, authority: bytes, token: str) -> str:
    """server: `https://host:port`; authority: its CA in PEM, empty for plain HTTP."""
    trust = f"\n    certificate-authority-data: {base64.b64encode(authority).decode()}" if authority else ""
    return f"""apiVersion: v1
kind: Config
current-context: wainwright
clusters:
- name: wainwright
  cluster:
    server: {server}{trust}
contexts:
- name: wainwright
  context:
    cluster: wainwright
    user: admin
users:
- name: admin
  user:
    token: {token}
"""


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
