"""The files in `operations` and the page about them: every command and option is there, and the tools
that read the files take them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from typer.main import get_command

from coterie.cli.main import app

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "operations"
UNITS = sorted((FILES / "systemd").iterdir())
PAGES = [ROOT / "docs" / name for name in ("operations.md", "deploy.md")]
PROGRAM = "/opt/coterie/bin/coterie"
ROOT_COMMAND = get_command(app)
# What a reader puts in place of these, so that the line can be parsed.
VALUES = {"...": "", "FILE": "file", "hospital-3.pub": "key.pub"}


def parse(words: list[str]) -> None:
    """Parse the words of a command as the command line does, without running it.

    Raises:
        click.UsageError: for an unknown command or option, or one that is missing.
    """
    command: click.Command = ROOT_COMMAND
    context = click.Context(command, info_name="coterie")
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, words)
        assert found is not None, name
        command = found
        words = rest
    command.make_context(command.name, [*words], parent=context, resilient_parsing=False)


def units_commands() -> Iterator[tuple[str, list[str]]]:
    for unit in UNITS:
        text = unit.read_text().replace("%i", "hospital-3").replace("$$", "$")
        for line in re.findall(r"^ExecStart=(.*)$", text, re.M):
            line = line.partition(f"{PROGRAM} ")[2].rstrip("'")
            line = re.sub(r"\$\{(\w+)\}|\$\(.*?\)", "value", line).replace("$COTERIE_OPTIONS", "")
            if line:
                yield unit.name, shlex.split(line)


def compose() -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = yaml.safe_load((FILES / "compose.yaml").read_text())
    return loaded


@pytest.mark.parametrize(("unit", "words"), list(units_commands()))
def test_the_commands_of_units_exist(unit: str, words: list[str]) -> None:
    parse(words)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        # systemd looks for the program, which is not installed here.
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    names = [unit.name for unit in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", *names], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


SANDBOX = {
    "NoNewPrivileges=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "ProtectSystem=strict",
    "ProtectKernelTunables=yes",
    "ProtectControlGroups=yes",
    "RestrictSUIDSGID=yes",
}


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit.suffix == ".service"])
def test_every_service_is_sandboxed_and_not_root(unit: Path) -> None:
    lines = set(unit.read_text().splitlines())
    assert {*SANDBOX, "User=coterie"} <= lines


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="no hadolint")
def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(["hadolint", str(FILES / "Dockerfile")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_commands_of_containers_exist() -> None:
    for service in compose()["services"].values():
        parse([re.sub(r"\$\{.*?\}", "value", word) for word in service["command"]])
        kind, program, *words = service["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "coterie")
        parse([re.sub(r"\$\{.*?\}", "value", word) for word in words])


def test_containers_publish_the_port_of_nodes_alone() -> None:
    from coterie.flower.operate.proxy import NODE_PORT

    services = compose()["services"]
    assert services["server"]["ports"] == [f"{NODE_PORT}:{NODE_PORT}"]
    assert "ports" not in services["node"]
    named = {
        volume.partition(":")[0]
        for service in services.values()
        for volume in service["volumes"]
        if not volume.startswith("$")
    }
    assert named == set(compose()["volumes"])
    assert (ROOT / services["server"]["build"]["dockerfile"]).exists()


def test_what_the_image_is_built_of_is_not_ignored() -> None:
    text = (FILES / "Dockerfile").read_text()
    ignored = (FILES / "Dockerfile.dockerignore").read_text().splitlines()
    sources = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M)
        for name in line.split()[:-1]
    ]
    assert sources
    for name in sources:
        assert (ROOT / name).exists()
        assert {f"!{name}", f"!{name.split('/')[0]}"} & set(ignored)
    # The image runs as this user, who owns what is mounted.
    assert text.count("10001") == 2


def page_commands() -> Iterator[tuple[str, str]]:
    """Every command of Coterie's in the blocks of the pages, one line each."""
    for page in PAGES:
        blocks = re.findall(r"(?m)(?:^    .*\n)+", page.read_text(encoding="utf-8"))
        for block in blocks:
            for line in block.replace("\\\n", " ").splitlines():
                found = re.search(r"(?:^ *|bin/|exec (?:-T )?server )coterie (.*)", line)
                run = re.search(r"compose.* run .*? server +(.*)", line)
                if found is not None:
                    yield page.name, found[1]
                elif run is not None:
                    yield page.name, run[1]


@pytest.mark.parametrize(("page", "line"), list(page_commands()))
def test_the_commands_of_the_pages_exist(page: str, line: str) -> None:
    words = [VALUES.get(word, word) for word in shlex.split(line, comments=True)]
    parse([word for word in words if word])


def test_the_pages_have_commands() -> None:
    counts = {page: sum(1 for name, _ in page_commands() if name == page.name) for page in PAGES}
    assert all(count > 5 for count in counts.values())
