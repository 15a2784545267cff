"""The tables of a sweep as text, with notes on what their columns mean: one of the algorithms, one of
how their settings were chosen, and one of how they serve single clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.headline import Headline, with_unit
from coterie.runs.scores import NOTE, OF_CLIENTS, protocol_notes
from coterie.sweep.comparison import Row, SweepTable
from coterie.sweep.measured import Figure
from coterie.sweep.tuning import VALIDATION, Tuned
from coterie.terminal import amount, number_text, printable

# An interval of fewer pairs is hardly known itself.
ENOUGH_SEEDS = 5
# figure -> in the column's head, in the note
FIGURES: dict[Figure, tuple[str, str]] = {
    "final": ("final", "last evaluated round"),
    "max": ("best", "best round"),
    "last10_mean": ("last ten", "mean of the last ten evaluated rounds"),
}


# --- columns and rows -----------------------------------------------------------------------------


def column_names(table: SweepTable) -> list[str]:
    """The names of the columns."""
    headline = table.headline
    value = with_unit(f"{headline.title} ({FIGURES[table.figure][0]})", headline.unit)
    # The head says which figure it is: a page of the same runs may show another one.
    names = ["algorithm", *table.keys, "runs", value, "sd", "difference", "± 95 %"]
    if table.target is None:
        return [*names, "bytes", "seconds"]
    shown = f"{headline.scale * table.target:.4f}".rstrip("0").rstrip(".")
    target = f"{shown} {headline.unit}".rstrip()
    return [*names, f"rounds to {target}", f"bytes to {target}", "seconds"]


def row_texts(table: SweepTable) -> list[list[str]]:
    """The rows as text."""
    return [_texts(row, table.target is not None, table.headline) for row in table.rows]


def _texts(row: Row, has_target: bool, headline: Headline) -> list[str]:
    runs = str(row.done)
    if row.refused:
        runs = "refused"
    elif row.done < row.planned:
        runs = f"{row.done} of {row.planned}"
    texts = [
        printable(row.algorithm),
        *(printable(value) for value in row.values),
        runs,
        headline.digits(row.mean),
        headline.digits(row.sd),
        *_difference_texts(row, headline),
    ]
    if has_target:
        texts.append(_rounds_text(row))
    moved = "-" if row.bytes is None else amount(row.bytes)
    return [*texts, moved, number_text(row.seconds, ".1f")]


def _difference_texts(row: Row, headline: Headline) -> tuple[str, str]:
    if row.difference is None:
        return "-", "-"
    return headline.digits(row.difference.mean, "+"), headline.digits(row.difference.half)


def _rounds_text(row: Row) -> str:
    """Mean rounds to the target, and how many runs reached it where not all did."""
    # A dash would mean that no run is done.
    if row.done and not row.reached:
        return "never"
    rounds = number_text(row.rounds, ".1f")
    if 0 < row.reached < row.done:
        return f"{rounds} ({row.reached} of {row.done})"
    return rounds


# --- notes ----------------------------------------------------------------------------------------


def notes(table: SweepTable) -> list[str]:
    """Whether grouping is worth it, and what the columns mean, in a sentence each."""
    one_seed = len(table.seeds) == 1
    over = f"mean and standard deviation over {len(table.seeds)} seeds"
    # A standard deviation needs two.
    if one_seed:
        over = "of one seed" if table.private else f"of one seed ({table.seeds[0]})"
    lines = [f"{table.headline.capital}: {FIGURES[table.figure][1]}, {over}."]
    if table.headline.better == "lower":
        lines[0] += " Lower is better."
    if len({row.algorithm for row in table.rows}) > 1:
        lines += [_difference_note(table), *_opposed_notes(table)]
    if table.without_model:
        said = [f"{table.headline.text(v)} {name}" for name, v in table.without_model.items()]
        lines.append(f"Without a model: {', '.join(said)}.")
    lines += _scored_notes(table)
    lines += [
        f"Refused: {line}." for line in dict.fromkeys(row.refused for row in table.rows) if line
    ]
    if table.target is not None:
        lines.append(
            "Rounds and bytes to the target: means over the runs that reached it; bytes down and "
            "up."
        )
    lines.append(
        "Seconds: all rounds of a run, mean over the runs. They are wall-clock times, so they "
        "differ when a sweep is run again. Start-up (importing libraries, compiling code, starting "
        "processes) is apart from them: `start_up` of table.csv and runs.csv."
    )
    if table.verdict is not None:
        lines.insert(0, table.verdict.text)
    return lines


def _difference_note(table: SweepTable) -> str:
    """What the difference and its interval are."""
    points = ", in points" if table.headline.unit == "%" else ""
    note = (
        f"Difference: of this {table.headline.title} to {printable(table.baseline)}, paired by "
        f"seed{points}; ±: half its 95 % interval (Student's t)."
    )
    if len(table.seeds) == 1:
        note += " With one seed there is no interval."
    elif len(table.seeds) < ENOUGH_SEEDS:
        note += " With so few seeds it may be narrow by chance; use five or more."
    if table.verdict is None or table.verdict.gain is None:
        note = f"{note} {table.overlap.note}".rstrip()
    return note


def _opposed_notes(table: SweepTable) -> list[str]:
    """A line for each row whose difference has one sign, and that of the mean over clients another.
    AUROC over all samples also rewards a model that knows which client has more positive samples.
    """
    base = [row for row in table.rows if row.algorithm == table.baseline]
    means = {row.values: _mean_over_clients(row) for row in base}
    metric = table.headline
    lines = []
    for row in table.rows:
        # Where settings were tuned, the baseline has one row, with settings of its own.
        theirs = means.get(base[0].values if table.tuning else row.values)
        ours = _mean_over_clients(row)
        if row.difference is None or ours is None or theirs is None:
            continue
        over_samples = metric.gain(row.difference.mean, over=0.0)
        over_clients = metric.gain(ours, over=theirs)
        if over_samples * over_clients < 0:
            better, worse = ("better", "worse") if over_samples > 0 else ("worse", "better")
            name = printable(row.algorithm)
            lines.append(
                f"{name} is {better} than {printable(table.baseline)} in {metric.title} over all "
                f"samples, and {worse} in its mean over clients ({metric.text(ours)}, "
                f"{metric.text(theirs)}): look at both."
            )
    return lines


def _mean_over_clients(row: Row) -> float | None:
    return row.scores[0].mean if row.scores else None


def _scored_notes(table: SweepTable) -> list[str]:
    """A warning where the rows' figures are over different clients, else nothing."""
    # A method that leaves out hard clients would look better than it is.
    counts = {row.scored for row in table.rows if row.scored is not None}
    if len(counts) < 2:
        return []
    each = [f"{printable(row.algorithm)} {number_text(row.scored, '.0f')}" for row in table.rows]
    return [
        "Not all rows score the same clients, since a client counts once it has a group; more "
        f"rounds give every client one. Clients scored at the end: {', '.join(each)}."
    ]


# --- all tables -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table of a sweep as text.

    Args:
        texts: how many columns, the first ones, are no numbers.
        notes: what stands below it, line by line.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int
    notes: Sequence[str]


def text_tables(table: SweepTable) -> list[TextTable]:
    """The tables that have rows, in the order in which they are shown."""
    texts = 1 + len(table.keys)
    comparison = TextTable(column_names(table), row_texts(table), texts, notes(table))
    found = (comparison, tuning_table(table), _score_table(table))
    return [one for one in found if one.rows]


# --- how settings were chosen ---------------------------------------------------------------------


def tuning_table(table: SweepTable) -> TextTable:
    """The table of trials: a row for each algorithm that was tried."""
    value = with_unit("validation", table.headline.unit)
    costs = ["trial seconds", "run seconds", "trial steps", "run steps"]
    columns = ["algorithm", *table.keys, "trials", value, *costs]
    rows = [
        _tuning_texts(row, table.tuning[row.algorithm], table.headline)
        for row in table.rows
        if row.algorithm in table.tuning
    ]
    return TextTable(columns, rows, 1 + len(table.keys), [*tuning_notes(table), COSTS])


def _tuning_texts(row: Row, tuned: Tuned, headline: Headline) -> list[str]:
    trials = str(tuned.trials)
    if tuned.skipped:
        trials = f"{tuned.trials - len(tuned.skipped)} of {tuned.trials}"
    return [
        printable(row.algorithm),
        *(printable(value) for value in row.values),
        trials,
        headline.digits(tuned.value),
        f"{tuned.seconds:.1f}",
        f"{row.done * (row.seconds or 0.0):.1f}",
        f"{tuned.steps:,}",
        f"{row.done * (row.steps or 0.0):,.0f}",
    ]


COSTS = (
    "Trial and run seconds and steps: sums over all trials, and over the runs of all seeds. A step is "
    "a batch that a client trained on."
)


def tuning_notes(table: SweepTable) -> list[str]:
    """What the settings were chosen by, what is unequal, and what may be better."""
    if not table.tuning:
        return []
    lines = [
        f"Settings: those of the trial with the best {table.headline.title} on "
        f"{100 * VALIDATION:g} % of each client's training samples, which no trial trains on (seed "
        f"{table.seeds[0]}). Test samples are not used for this choice."
    ]
    counts = {name: tuned.trials for name, tuned in table.tuning.items()}
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{printable(name)} {count}" for name, count in counts.items())
        lines.append(f"More trials are an advantage, and the numbers differ: {each}.")
    edges = [f"{edge} of {name}" for name, one in table.tuning.items() for edge in one.edges]
    if edges:
        lines.append(
            f"At the edge of the values tried: {printable(', '.join(edges))}. Values beyond it may be "
            "better."
        )
    skipped = [line for one in table.tuning.values() for line in one.skipped]
    if skipped:
        lines.append(f"Trials that do not count: {printable('; '.join(skipped))}.")
    return lines


# --- how single clients are served ----------------------------------------------------------------


def _score_table(table: SweepTable) -> TextTable:
    """A row for each row of the sweep and way of scoring."""
    title = table.headline.title
    columns = ["algorithm", *table.keys, "scored", title, *OF_CLIENTS]
    rows = [
        [printable(row.algorithm), *(printable(value) for value in row.values), *one.texts]
        for row in table.rows
        for one in row.scores
    ]
    scores = [one for row in table.rows for one in row.scores]
    below = [*protocol_notes(scores), NOTE.format(table.headline.capital)]
    return TextTable(columns, rows, 2 + len(table.keys), below)
