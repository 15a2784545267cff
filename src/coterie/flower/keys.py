"""Keys and certificates, and how files are written that only their owner may read.

For a trial there is an authority of its own (trustme) with the server's certificate. For a real
federation that comes from an authority that the sites trust. Each site makes its own node's key and
sends the public half. Modules of the extra ``flower`` are imported where they are used.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.clients.identity import LONGEST
from coterie.errors import ConfigError, first_line
from coterie.files import sync_folder, write_private
from coterie.flower.processes.flower_commands import require_flower


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read, for a program that writes it; an existing
    file keeps its content.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "database"
        ...     bytes_written = file.write_bytes(b"42")
        ...     create_private(file)
        ...     oct(file.stat().st_mode & 0o777), file.read_bytes()
        ('0o600', b'42')
    """
    path.touch(mode=0o600)
    path.chmod(0o600)


def replace_private(path: Path, content: bytes) -> None:
    """Write a file so that at any moment it is the old one or the new one, whole.

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


# --- certificates ---------------------------------------------------------------------------------

VALID_DAYS = 365
SERVER_FILES = ("ca.crt", "server.pem", "server.key")
_MADE_FOR = b" coterie:"  # begins the comment of a public key, before the name of its client


def make_server_keys(folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> None:
    """Write ``ca.crt``, ``server.pem`` and ``server.key``; where all three exist they stay."""
    require_flower()
    import trustme

    if all((folder / name).exists() for name in SERVER_FILES):
        return
    # The authority's private key is not kept: nothing else can be signed by it later. By the path
    # length no certificate that it signs may sign another.
    authority = trustme.CA(path_length=0, organization_name="Coterie trial authority")
    until = dt.datetime.now(dt.UTC) + dt.timedelta(days=VALID_DAYS)
    try:
        server = authority.issue_cert(*hosts, common_name=hosts[0], not_after=until)
    except ValueError as error:
        what = f"not the name or address of a machine ({first_line(error)})"
        raise ConfigError("wrong-type", "--host", what) from None
    folder.mkdir(parents=True, exist_ok=True)
    authority.cert_pem.write_to_path(folder / "ca.crt")
    (folder / "server.pem").write_bytes(server.cert_chain_pems[0].bytes())
    write_private(folder / "server.key", server.private_key_pem.bytes())


def certificate_end(file: Path) -> dt.datetime:
    """Until when a certificate is valid, which it has to be now."""
    certificate = _read_certificate(file)
    end: dt.datetime = certificate.not_valid_after_utc
    begin: dt.datetime = certificate.not_valid_before_utc
    now = dt.datetime.now(dt.UTC)
    if not begin <= now <= end:
        got = f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}"
        expected = "a certificate that is valid today"
        raise ConfigError("out-of-range", file, "not valid now", found=got, allowed=expected)
    return end


def _unreadable(file: Path, error: OSError, needed: str) -> ConfigError:
    what = f"cannot be read ({error.strerror})"
    return ConfigError("cannot-be-read", file, what, do=f"provide {needed}")


def _read_certificate(file: Path) -> Any:
    """The first certificate of a file."""
    # Those of a real authority, too, so that trustme does not help here.
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        raise _unreadable(file, error, "the file of a certificate") from None
    except ValueError:
        what = "not a certificate"
        raise ConfigError("cannot-be-read", file, what, allowed="PEM") from None


# --- keys of nodes --------------------------------------------------------------------------------


def make_node_key(folder: Path, name: str) -> Path:
    """Write ``<name>.key`` and ``<name>.pub`` of a node; returns the path of the private one.

    Keys are on NIST P-384 and in OpenSSH's format, as ``ssh-keygen -t ecdsa -b 384`` makes them. A
    key that exists stays.
    """
    require_flower()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    file = folder / f"{name}.key"
    if file.exists():
        return file
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    # The private key last: where it exists, the pair is taken to be whole.
    (folder / f"{name}.pub").write_bytes(public + _MADE_FOR + name.encode())
    write_private(file, secret)
    return file


def key_fingerprint(public_key: Path) -> str:
    """Sixteen letters that stand for the public key of a node."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        text = public_key.read_bytes()
    except OSError as error:
        raise _unreadable(public_key, error, "the .pub file of a node") from None
    if b"PRIVATE KEY" in text:
        what = "a private key, which must not leave its site"
        raise ConfigError("does-not-fit", public_key, what, allowed="the .pub file next to it")
    try:
        curve = load_ssh_public_key(text).curve.name
    except (ValueError, AttributeError, UnsupportedAlgorithm):
        curve = "a different kind of key"
    if curve != "secp384r1":
        what = f"not a NIST P-384 key but {curve}"
        expected = "the file that `coterie node` wrote"
        raise ConfigError("does-not-fit", public_key, what, allowed=expected)
    return hashlib.sha256(b" ".join(text.split()[:2])).hexdigest()[:16]


def name_in_key(public_key: Path) -> str:
    """The name for which Coterie made a public key; empty for a key that was made otherwise."""
    return public_key.read_bytes().partition(_MADE_FOR)[2].decode("utf-8", "replace").strip()


def check_name(name: str) -> str:
    """Validate the name of a client, which is also that of its files."""
    if not 0 < len(name) <= LONGEST or not name.isprintable():
        expected = f"1 to {LONGEST} printable characters"
        raise ConfigError("wrong-type", "--name", got=name[:80], allowed=expected)
    # With a dash in front Flower's command would take the name for an option.
    if "/" in name or name.startswith((".", "-")):
        expected = "a name without '/' that does not begin with a dot or a dash"
        what = "not usable as a file name"
        raise ConfigError("wrong-type", "--name", what, got=name, allowed=expected)
    return name
