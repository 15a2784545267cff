"""Keys and certificates, and how files are written that only their owner may read.

For a trial there is an authority of its own, the server's certificate, and a key for every node.
For a real federation the server's certificate comes from an authority that the sites trust, and
each site makes its own node's key and sends the public half.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.errors import ConfigError, install_command
from coterie.files import sync_folder


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    # Made with these rights: to change them afterwards would leave a moment in which any user of
    # the machine can open the file.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        # The rights above are those of a new file; one that is there would keep its own.
        os.fchmod(descriptor, 0o600)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read, for a program that writes it; one that is there
    keeps its content.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "database"
        ...     bytes_written = file.write_bytes(b"42")
        ...     create_private(file)
        ...     oct(file.stat().st_mode & 0o777), file.read_bytes()
        ('0o600', b'42')
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def replace_private(path: Path, content: bytes) -> None:
    """The same so that the file is the old one or the new one, whole, at any moment.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "secret"
        ...     replace_private(file, b"42")
        ...     [one.name for one in Path(folder).iterdir()], file.read_bytes()
        (['secret'], b'42')
    """
    # Flower starts a process for each message, and two may write at once: hence a name for each.
    hidden = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    write_private(hidden, content)
    hidden.replace(path)
    sync_folder(path.parent)


# --- keys and certificates ------------------------------------------------------------------------

VALID_DAYS = 365
SERVER_FILES = ("ca.crt", "server.pem", "server.key")
# An authority signs certificates and does nothing else.
OTHER_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class Cryptography:
    """The modules of the package cryptography, which comes with the extra ``flower``."""

    x509: Any
    ec: Any
    hashes: Any
    serialization: Any
    unsupported: type[Exception]  # raised for keys of a kind that the package does not know

    @classmethod
    def load(cls) -> Cryptography:
        try:
            from cryptography import x509
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            what = "the package cryptography is missing, got no import"
            raise ConfigError(f"deploy: {what}; expected {install_command('flower')}") from None
        return cls(x509, ec, hashes, serialization, UnsupportedAlgorithm)

    def new_key(self) -> Any:
        """A private key on the curve NIST P-384, which Flower asks for."""
        return self.ec.generate_private_key(self.ec.SECP384R1())


def make_server_keys(folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> None:
    """Write ``ca.crt``, ``server.pem`` and ``server.key``; where all three exist they stay."""
    crypto = Cryptography.load()
    if all((folder / name).exists() for name in SERVER_FILES):
        return
    folder.mkdir(parents=True, exist_ok=True)
    # The authority's private key is not kept: nothing else can be signed by it later.
    authority = crypto.new_key()
    server = crypto.new_key()
    pem = crypto.serialization.Encoding.PEM
    root = _root_certificate(crypto, authority)
    leaf = _server_certificate(crypto, authority, server.public_key(), hosts)
    (folder / "ca.crt").write_bytes(root.public_bytes(pem))
    (folder / "server.pem").write_bytes(leaf.public_bytes(pem))
    secret = server.private_bytes(
        pem, crypto.serialization.PrivateFormat.PKCS8, crypto.serialization.NoEncryption()
    )
    write_private(folder / "server.key", secret)


def make_node_key(folder: Path, name: str) -> Path:
    """Write ``<name>.key`` and ``<name>.pub`` of a node; returns the path of the private one.

    Keys are on NIST P-384 and in OpenSSH's format, as ``ssh-keygen -t ecdsa -b 384`` makes them. A
    key that exists stays.
    """
    crypto = Cryptography.load()
    file = folder / f"{name}.key"
    if file.exists():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    key = crypto.new_key()
    formats = crypto.serialization
    public = key.public_key().public_bytes(formats.Encoding.OpenSSH, formats.PublicFormat.OpenSSH)
    secret = key.private_bytes(
        formats.Encoding.PEM, formats.PrivateFormat.OpenSSH, formats.NoEncryption()
    )
    # The private key last: where it exists, the pair is taken to be whole.
    (folder / f"{name}.pub").write_bytes(public)
    write_private(file, secret)
    return file


def _root_certificate(crypto: Cryptography, authority: Any) -> Any:
    """The authority's certificate, signed by itself."""
    x509 = crypto.x509
    name = _authority_name(crypto)
    usage = x509.KeyUsage(**dict.fromkeys(OTHER_USAGES, False), key_cert_sign=True, crl_sign=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    # A path length of 0: no certificate that it signs may sign another.
    return (
        _unsigned(crypto, name, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority, crypto.hashes.SHA384())
    )


def _server_certificate(
    crypto: Cryptography, authority: Any, public: Any, hosts: Sequence[str]
) -> Any:
    """The server's certificate for these hosts, signed by the authority."""
    x509 = crypto.x509
    names = x509.SubjectAlternativeName([_host_name(crypto, host) for host in hosts])
    signer = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer)
    return (
        _unsigned(crypto, _common_name(crypto, hosts[0]), public)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(signed_by, critical=False)
        .sign(authority, crypto.hashes.SHA384())
    )


def _unsigned(crypto: Cryptography, subject: Any, public: Any) -> Any:
    """A certificate that the authority has yet to sign."""
    now = dt.datetime.now(dt.UTC)
    return (
        crypto.x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_authority_name(crypto))
        .public_key(public)
        .serial_number(crypto.x509.random_serial_number())
        # An hour ago: the clocks of nodes may be slow.
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
    )


def _authority_name(crypto: Cryptography) -> Any:
    return _common_name(crypto, "Coterie trial authority")


def _common_name(crypto: Cryptography, text: str) -> Any:
    x509 = crypto.x509
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _host_name(crypto: Cryptography, host: str) -> Any:
    """A host as a certificate names it: an address, or a DNS name."""
    try:
        return crypto.x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return crypto.x509.DNSName(host)
