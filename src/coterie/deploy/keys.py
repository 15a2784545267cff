"""Certificates and keys for a trial: an authority of our own, one certificate of the server, a key
for every node.

For a real federation the server's certificate comes from the authority that the sites trust, and
each site makes its own node's key and sends the public half.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError, install_command

DAYS = 365
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)
NEEDED = (
    "deploy: the package cryptography is missing, got no import; "
    f"expected {install_command('flower')}"
)


def make_server(folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> None:
    """``ca.crt``, ``server.pem`` and ``server.key``; what is there already stays.

    Args:
        folder: where to.
        hosts: names and addresses under which nodes reach the server.

    Raises:
        ConfigError: if the package cryptography is missing.
    """
    x509, ec, hashes, serialization = _cryptography()
    if all((folder / name).exists() for name in ("ca.crt", "server.pem", "server.key")):
        return
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca = _name(x509, "Coterie trial authority")
    usage = dict.fromkeys(_USAGES, False)
    signing = x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True)
    of_ca = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    root = (
        _certificate(x509, ca, ca, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .add_extension(of_ca, critical=False)
        .sign(authority, hashes.SHA384())
    )
    leaf = (
        _certificate(x509, _name(x509, hosts[0]), ca, server.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([_host(x509, host) for host in hosts]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(of_ca), critical=False
        )
        .sign(authority, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(root.public_bytes(pem))
    (folder / "server.pem").write_bytes(leaf.public_bytes(pem))
    private = server.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _private(folder / "server.key", private)


def make_node(folder: Path, name: str) -> Path:
    """``<name>.key`` and ``<name>.pub`` of a node, NIST P-384 in OpenSSH's format; returns the
    private one's path.

    Raises:
        ConfigError: if the package cryptography is missing.
    """
    _, ec, _, serialization = _cryptography()
    file = folder / f"{name}.key"
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    (folder / f"{name}.pub").write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    _private(file, secret)
    return file


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ConfigError(NEEDED) from None
    return x509, ec, hashes, serialization


def _name(x509: Any, common: str) -> Any:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common)])


def _certificate(x509: Any, subject: Any, issuer: Any, public: Any) -> Any:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=DAYS))
    )


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(file: Path, content: bytes) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content)
