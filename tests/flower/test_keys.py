"""Keys and certificates for a trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.cli.main import invoke
from coterie.files import write_private


def test_keys_are_private_and_stay(deployment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["node", "key", "hospital-3", "--folder", str(deployment / "keys")]) == 0
    private = deployment / "keys" / "hospital-3.key"
    public = deployment / "keys" / "hospital-3.pub"
    assert str(public) in capsys.readouterr().out
    assert public.read_text().startswith("ecdsa-sha2-nistp384 ")
    assert all(
        file.stat().st_mode & 0o077 == 0 for file in (private, deployment / "keys" / "server.key")
    )
    before = private.read_bytes()
    assert invoke(["node", "key", "hospital-3", "--folder", str(deployment / "keys")]) == 0
    assert private.read_bytes() == before


def test_nobody_else_enters_the_folder_of_a_new_key(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    assert invoke(["node", "key", "ann", "--folder", str(tmp_path / "keys")]) == 0
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def test_a_file_that_others_could_read_becomes_private(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"old and longer")
    file.chmod(0o644)
    write_private(file, b"new")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_bytes() == b"new"


def test_the_certificate_is_for_the_hosts_named(tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509", reason="the extra 'flower' is not installed")
    from coterie.flower.keys import make_server_keys

    make_server_keys(tmp_path, ("localhost", "127.0.0.1", "fl.example.org"))
    leaf, ca = (
        x509.load_pem_x509_certificate((tmp_path / name).read_bytes())
        for name in ("server.pem", "ca.crt")
    )
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "fl.example.org"]
    leaf.verify_directly_issued_by(ca)
