"""What a site checks before its node joins, against a real nginx."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from PIL import Image

from tests.refusals import refuses

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

from coterie.data.sources.files import DataForm
from coterie.errors import Code, ConfigError, CoterieError, DataError, RemoteError
from coterie.flower.keys import make_server_keys
from coterie.flower.node import site_checks
from coterie.flower.node.site import Site, check_site
from coterie.flower.node.site_checks import (
    ServerAnswer,
    check_clock,
    check_data,
    check_versions,
    meet_server,
)
from coterie.flower.operate.proxy import (
    FederationCard,
    card_text,
    find_nginx,
    installed_version,
    start_proxy,
    write_card,
)
from coterie.flower.processes.process import free_ports, stop
from coterie.flower.settings import DeploymentSettings

NGINX = find_nginx() or ""
ODD = ("gesund", 'it"s $100', "l'été \\ \u96ea")  # what would break nginx's configuration
SETTINGS = DeploymentSettings(clients=3, shape=(2,), classes=ODD, features=("a", "b"))


@pytest.fixture
def address(deployment: Path) -> Iterator[str]:
    """Where nginx tells nodes what the federation is. No SuperLink is behind it."""
    if not NGINX:
        pytest.skip("nginx is not installed")
    write_card(deployment, SETTINGS)
    port, nowhere = free_ports(2)
    proxy = start_proxy(NGINX, deployment, port, f"127.0.0.1:{nowhere}")
    yield f"127.0.0.1:{port}"
    stop([proxy])


def write_data(path: Path, label: int = 2, rows: int = 10) -> Path:
    columns = {"a": [0.0] * rows, "b": [1.0] * rows, "label": [0, label] * (rows // 2)}
    parquet.write_table(pa.table(columns), path)
    return path


def test_the_server_says_what_it_expects(address: str, deployment: Path) -> None:
    answer = meet_server(address, deployment / "keys" / "ca.crt")
    assert answer.card is not None
    assert answer.card.form == DataForm((2,), ODD, features=("a", "b"))
    assert answer.card.coterie == installed_version("coterie")
    assert answer.ahead == 0.0


def test_what_is_wrong_with_the_connection_is_one_line(
    address: str, deployment: Path, tmp_path: Path
) -> None:
    certificates = deployment / "keys" / "ca.crt"
    make_server_keys(tmp_path / "other")
    cases = (
        (address, tmp_path / "other" / "ca.crt", "not-trusted"),
        (f"127.0.0.1:{free_ports(1)[0]}", certificates, "unreachable"),
        ("nowhere.invalid:18001", certificates, "unreachable"),
    )
    for server, authority, code in cases:
        with refuses(RemoteError, code, server) as found:
            meet_server(server, authority)
        assert "\n" not in str(found.value)
    with pytest.raises(RemoteError) as found:
        _with_host(address, certificates)
    (problem,) = found.value.problems
    assert problem.code == "not-trusted"
    assert problem.path.startswith("localhost.localdomain:")
    with refuses(ConfigError, "cannot-be-read", "none.crt"):
        meet_server(address, tmp_path / "none.crt")
    with refuses(ConfigError, "wrong-type", "--server"):
        meet_server("fl.example.org", certificates)


def _with_host(address: str, certificates: Path) -> None:
    """Meet a server under a name that its certificate does not have."""
    import socket

    real = socket.getaddrinfo

    def local(host: object, *rest: object, **more: object) -> object:
        return real("127.0.0.1", *rest, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", local)
        meet_server(f"localhost.localdomain:{address.rpartition(':')[2]}", certificates)


def test_a_certificate_that_has_expired_is_named(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime(3199, 1, 1, tzinfo=tz)

    monkeypatch.setattr("coterie.flower.keys.dt.datetime", Later)
    with refuses(ConfigError, "out-of-range", "ca.crt"):
        meet_server("127.0.0.1:1", deployment / "keys" / "ca.crt")


@pytest.mark.parametrize(
    ("shift", "refusal"), [(20.5, ("differs", "clock")), (-400.5, ("differs", "clock"))]
)
def test_a_clock_that_flower_would_not_take_is_named(
    shift: float,
    refusal: tuple[Code, str],
    address: str,
    deployment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time
    monkeypatch.setattr(site_checks, "time", SimpleNamespace(time=lambda: now() + shift))
    answer = meet_server(address, deployment / "keys" / "ca.crt")
    with refuses(ConfigError, *refusal):
        check_clock(answer)


def test_another_version_of_coterie_is_named() -> None:
    own = installed_version("coterie")
    flower = installed_version("flwr")
    assert check_versions(FederationCard(own, flower, None)).endswith("as on the server")
    assert "but 9.9 on the server" in check_versions(FederationCard(own, "9.9", None))
    with refuses(ConfigError, "differs", "versions"):
        check_versions(FederationCard("9.9", flower, None))


def test_data_are_checked_against_what_the_server_expects(tmp_path: Path) -> None:
    form = DataForm((2,), ("a", "b", "c"), features=("a", "b"))
    options = {"data": str(write_data(tmp_path / "p.parquet"))}
    line = check_data(options, form)
    assert (
        line == "data: 8 rows to train on and 2 to test on, inputs [2], to train on: a 4, b 0, c 4"
    )
    assert "does not say" in check_data(options, None)
    wrong = (
        (options | {"classes": "a, c, b"}, form, "differs", "--classes"),
        (options, replace(form, shape=(3,)), "wrong-shape", "load_client"),
        (options, replace(form, features=()), "does-not-fit", "p.parquet"),
        (options, replace(form, features=("a", "c")), "not-found", "p.parquet"),
        (options, replace(form, classes=("a", "b")), "out-of-range", "load_client"),
        ({"data": str(tmp_path / "none")}, form, "not-found", "none"),
        (options | {"classes": "a,b"}, None, "out-of-range", "data"),
    )
    for given, known, code, path in wrong:
        with refuses(DataError, code, path):
            check_data(given, known)
    loader = tmp_path / "own.py"
    loader.write_text("def load_client(context):\n    return ([[1.0, 2.0]], [1]), None\n")
    assert "1 row to train on and 0" in check_data({"loader": str(loader)}, form)
    assert "1 row to train on and 0" in check_data({"loader": str(loader)}, None)
    loader.write_text("def load_client(context):\n    return 3\n")
    with refuses(DataError, "wrong-type", "load_client"):
        check_data({"loader": str(loader)}, form)


def test_a_site_without_labels_is_told_that_it_does_not_train(tmp_path: Path) -> None:
    form = DataForm((2,), ("a", "b", "c"), features=("a", "b"))
    options = {"data": str(write_data(tmp_path / "p.parquet")), "unlabelled": True}
    words = "data: 10 rows without labels, so this client does not train, inputs [2]"
    assert check_data(options, form) == words
    assert check_data(options, None) == f"{words}; the server does not say what it expects"
    loader = tmp_path / "own.py"
    loader.write_text("def load_client(context):\n    return ([[1.0, 2.0]], None), None\n")
    assert "1 row without labels" in check_data({"loader": str(loader)}, form)
    assert "1 row without labels" in check_data({"loader": str(loader)}, None)


def test_what_the_server_calls_things_moves_no_cursor(tmp_path: Path) -> None:
    hostile = "9\x1b[2J"
    assert "\x1b" not in check_versions(FederationCard(installed_version("coterie"), hostile, None))
    options = {"data": str(write_data(tmp_path / "p.parquet"))}
    assert "\x1b" not in check_data(
        options, DataForm((2,), ("a", "b", hostile), features=("a", "b"))
    )


def test_data_can_be_checked_where_the_server_says_nothing(tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("age,label\n" + "40,ill\n50,healthy\n" * 5)
    assert "8 rows to train on and 2" in check_data({"data": str(names)}, None)
    table = tmp_path / "table.csv"
    table.write_text("sex,label\n" + "female,ill\nmale,healthy\n" * 5)
    assert "a table that can be read" in check_data({"data": str(table)}, None)
    for label in ("ill", "healthy"):
        (tmp_path / "images" / label).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "images" / label / "1.png")
    assert "2 rows to train on" in check_data({"data": str(tmp_path / "images")}, None)
    with refuses(DataError, "unknown-choice", "node"):
        check_data({"data": str(names), "classes": "no"}, None)


def test_all_that_is_wrong_is_said_at_once(
    address: str, deployment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"data": str(write_data(tmp_path / "p.parquet", label=7))}
    site = Site(address, deployment / "keys" / "ca.crt", "hospital-3", tmp_path, data)
    lines: list[str] = []
    with refuses(DataError, "out-of-range", "load_client"):
        check_site(site, lines.append)
    assert [line.split(":")[0] for line in lines] == ["server", "clock", "versions"]
    gone = replace(site, server=f"127.0.0.1:{free_ports(1)[0]}", options={"data": "/none"})
    with pytest.raises(CoterieError) as found:
        check_site(gone, lines.append)
    both = str(found.value).splitlines()
    assert len(both) == 2
    assert "no connection" in both[0]
    assert "/none: not found" in both[1]


def test_a_long_class_list_is_left_out_and_other_text_is_no_card() -> None:
    long = DeploymentSettings(
        clients=3, shape=(2,), classes=tuple(f"class {at}" for at in range(1000))
    )
    card = FederationCard.loads(card_text(long).encode())
    assert card.form is None
    for text in (
        b"",
        b"[]",
        b'{"coterie": 1}',
        b"<html>",
        b'{"shape": 3, "coterie": "", "flower": ""}',
    ):
        with refuses(RemoteError, "cannot-be-read", "server"):
            FederationCard.loads(text)
    assert json.loads(card_text(SETTINGS))["classes"] == list(ODD)
    assert check_clock(ServerAnswer(None, -200.0)).startswith("clock: agrees")
