"""Commands that show what there is before a run: choices with their options, and data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import click
import typer

from coterie.cli.completion import complete_kind
from coterie.cli.options import Assignments, ConfigFile, DataRoot, Debug, data_root_value
from coterie.errors import ConfigError, shown
from coterie.listed import LISTED

if TYPE_CHECKING:
    from coterie.data import Population
    from coterie.data.sources.files import FileRows

SHOWN_CLIENTS = 24
NAME_WIDTH = 16
WORDS = list(LISTED)
KINDS_HELP = f"The kind to list: {', '.join(WORDS[:-1])} or {WORDS[-1]}."


def list_command(
    what: Annotated[
        str, typer.Argument(metavar="KIND", help=KINDS_HELP, autocompletion=complete_kind)
    ],
) -> None:
    """List algorithms, models, datasets, ... with their options.

    Shows the default and the allowed values of each option.
    """
    from coterie.cli.data_tables import choices_list
    from coterie.terminal import console

    if what not in LISTED:
        expected = ", ".join(LISTED)
        raise click.UsageError(f"list: unknown, got {what!r}; expected one of {expected}")
    console().print(choices_list(_choices(LISTED[what])), soft_wrap=True)


def _choices(kind: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Name, first paragraph of the docstring, and options with what they may be. The description of
    a plugin names its package. A plugin that cannot be used is a warning."""
    from coterie.config import registry

    for name in sorted(registry.names(kind)):
        try:
            # The first paragraph of the docstring, on one line: it says what the factory makes.
            text = (registry.find(kind, name).__doc__ or "").replace("`", "")
            description = " ".join(text.strip().split("\n\n")[0].split())
            options = _spelled_options(kind, name)
            if kind == "model":
                description += _parameter_count(name)
        # One broken plugin does not hide the other choices.
        except ConfigError as error:
            typer.echo(f"warning: {error}", err=True)
            continue
        package = registry.package(kind, name)
        if package is not None:
            description += f" [{package}]"
        yield name, description, options
    for refusal in registry.plugins(kind).refused.values():
        typer.echo(f"warning: {refusal}", err=True)


def _parameter_count(name: str) -> str:
    """A sentence with the number of parameters of a network, in the use that it was made for."""
    from coterie.models import spec

    made = spec(name)
    inputs = "x".join(map(str, made.shape))
    outputs = "1 output" if made.classes == 1 else f"{made.classes} outputs"
    return f" {made.parameters:,} parameters for inputs of {inputs} and {outputs}."


def _spelled_options(kind: str, name: str) -> list[tuple[str, str]]:
    from coterie.config import registry
    from coterie.config.wording import describe_type

    spelled = []
    for option, (allowed, default) in registry.options(kind, name).items():
        # `...` stands for no default, as in pydantic.
        if default is ...:
            words = option
        elif default is None:
            words = f"{option}="
        else:
            words = f"{option}={shown(default)}"
        spelled.append((words, describe_type(allowed)))
    return spelled


def inspect_command(
    config: ConfigFile,
    assignments: Assignments = None,
    data_root: DataRoot = None,
    debug: Debug = False,
) -> None:
    """Show clients, sizes and label distributions of the data."""
    from coterie.cli.data_tables import sizes_table
    from coterie.experiment import load_config
    from coterie.runs.columns import warn_of_values
    from coterie.runs.data import load_data, read_file_rows
    from coterie.terminal import console, counted, printable

    validated = load_config(config, assignments or (), data_root_value(data_root))
    # As for a run but without a network: what is shown is what a run would train on.
    table = read_file_rows(validated)
    samples = None
    if table is not None:
        samples = table.samples(validated.options("source")["shape"])
    samples, _, population = load_data(validated, samples=samples)
    source = f"{validated.name('source')}, {validated.name('partition')}"
    out = console()
    targets = f"{population.classes} classes"
    # Where targets are no classes there are none to count.
    has_tokens = validated.name("task") == "next_token"
    if not population.classes:
        targets = "tokens to predict" if has_tokens else "numbers to predict"
    out.print(f"{source}: {counted(population.clients, 'client')}, {targets}")
    train = population.sizes("train").tolist()
    test = population.sizes("test").tolist()
    out.print(sizes_table([("train", train), ("test", test)]))
    _print_columns(table, population)
    warn_of_values(validated, population)
    if has_tokens:
        _print_tokens(population)
        return
    if not population.classes:
        _print_numbers(population)
        return
    # Names come from the data and may hold codes that steer a terminal.
    labels = [printable(name) for name in samples.label_names]
    if not labels:
        labels = [str(label) for label in range(population.classes)]
    _print_labels(population, labels)


def _print_columns(rows: FileRows | None, population: Population) -> None:
    """The kind of each column of a file, and what the inputs are."""
    from coterie.data.tabular.text_columns import text_line
    from coterie.terminal import console, counted, printable

    out = console()
    if rows is not None:
        for name, kind, why in rows.described("classes" if population.classes else "numbers"):
            out.print(f"column {printable(name)}: {kind} ({printable(why)})", soft_wrap=True)
    if population.table is None:
        return
    encoder = population.table.encoder
    names = printable(", ".join(encoder.features))
    text = text_line(encoder, population.table.raw.origin.why_text)
    if text:
        out.print(printable(text), soft_wrap=True)
    out.print(f"{counted(len(encoder.features), 'feature')}: {names}", soft_wrap=True)
    for note in (*encoder.notes, *encoder.rare_notes):
        out.print(printable(note), soft_wrap=True)


def _print_numbers(population: Population) -> None:
    import numpy as np

    targets = population.y.numpy()[np.concatenate(population.train)].astype(np.float64)
    spread = f"mean {targets.mean():.4g}, standard deviation {targets.std():.4g}"
    print(f"targets of the training samples: {spread}", file=sys.stdout)
    print(f"from {targets.min():.4g} to {targets.max():.4g}", file=sys.stdout)


def _print_tokens(population: Population) -> None:
    import numpy as np

    from coterie.tasks.next_token import PADDING

    targets = population.y.numpy()[np.concatenate(population.train)]
    tokens = targets[targets != PADDING]
    which = f"{tokens.size} tokens, {len(np.unique(tokens))} of them different"
    print(f"targets of the training samples: {which}", file=sys.stdout)
    print(f"places that do not count ({PADDING}): {targets.size - tokens.size}", file=sys.stdout)


def _print_labels(population: Population, labels: Sequence[str]) -> None:
    import numpy as np

    from coterie.cli.data_tables import bars, heat
    from coterie.terminal import counted, printable

    count = min(SHOWN_CLIENTS, population.clients)
    # Evenly over all clients: partitions give neighbours like data, so the first would be alike.
    shown = [i * population.clients // count for i in range(count)]
    kept = np.arange(population.clients)
    counted_clients = ""
    # The clients of a lazy federation are made when they are asked for, so only those shown are.
    if population.lazy:
        kept = np.array(shown)
        counted_clients = f" of {counted(len(shown), 'client')}"
    histograms = dict(zip(kept.tolist(), population.histograms_of(kept), strict=True))
    total = sum(histograms.values()).tolist()
    names = {i: printable(population.names[i])[:NAME_WIDTH] for i in shown}
    width = max(map(len, names.values()))

    # Not through rich, which would break lines that are wider than the terminal.
    lines = ["", f"labels of the training samples{counted_clients}", *bars(labels, total), ""]
    legend = "a column per class (░ little, █ nearly all)"
    lines.append(f"label mix of {counted(len(shown), 'client')}, {legend}")
    for i, name in names.items():
        row = histograms[i].tolist()
        lines.append(f"{name:>{width}} |{heat(row)}| {sum(row)}")
    print("\n".join(lines), file=sys.stdout)
