"""Help texts and suggestions, as a user sees them who types the command."""

from __future__ import annotations

import click
import pytest
import typer

from coterie.cli.main import app, invoke


def all_commands(group: click.Group, words: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Every command, by the words that call it."""
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= all_commands(command, (*words, name))
        else:
            found[" ".join((*words, name))] = command
    return found


COMMANDS = all_commands(typer.main.get_command(app))


@pytest.mark.parametrize("words", COMMANDS)
def test_help_is_plain_text(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([*words.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert "\\" not in text
    assert text.count("rguments:") <= 1
    required = [p for p in COMMANDS[words].params if p.required]
    assert text.count("required]") == len(required)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_argument_and_option_has_a_help_text(words: str) -> None:
    parameters = [p for p in COMMANDS[words].params if p.name != "help"]
    assert all(getattr(parameter, "help", None) for parameter in parameters)


@pytest.mark.parametrize("words", COMMANDS)
def test_the_list_of_commands_has_whole_sentences(words: str) -> None:
    """Click cuts what is longer than the line, and ends it with three dots."""
    short = COMMANDS[words].get_short_help_str(limit=80 - len("  reproduce  ") - 2)
    assert short.endswith(".")
    assert not short.endswith("...")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("rum", "No such command 'rum'. Did you mean 'run' or 'resume'? `coterie --help`"),
        ("deploy rum", "No such command 'rum'. Did you mean 'run'? `coterie deploy --help`"),
        ("zzz", "No such command 'zzz'. `coterie --help` lists them."),
        ("run c.toml --sed 1", "No such option '--sed'. Did you mean '--seed' or '--set'?"),
        ("run c.toml --qqq 1", "No such option '--qqq'."),
    ],
)
def test_a_wrong_name_has_one_suggestion(
    words: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(words.split()) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {line}")
    assert printed.count("\n") == 1
    assert printed.count("Did you mean") == line.count("Did you mean")
