"""The tables of a scoreboard, the same on the page, in Markdown and in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coterie.report.render import Section
from coterie.studies.scoreboard.figures import Column, Entry, Ranking, Spread, SuiteFigures
from coterie.studies.scoreboard.running import DEFAULTS, TUNED
from coterie.studies.scoreboard.suite import Federation, Setting
from coterie.terminal import number_text

NONE = "-"
NO_RANKING = Ranking({}, 0, None, None)


def _section(
    title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> Section:
    return {"title": title, "note": note, "columns": columns, "rows": rows}


def rank_table(figures: SuiteFigures) -> Section:
    """The mean ranks over all federations, the best method first."""
    columns: list[tuple[str, str, Column]] = [
        ("defaults, equal work", DEFAULTS, "equal_work"),
        ("defaults, equal bytes", DEFAULTS, "equal_bytes"),
        ("tuned, equal work", TUNED, "equal_work"),
        ("tuned, equal bytes", TUNED, "equal_bytes"),
    ]
    if not figures.tuned:
        columns = columns[:2]
    rankings = [figures.ranking(settings, column) or NO_RANKING for _, settings, column in columns]
    first = rankings[0]
    rows = []
    for method in [*first.ranks, *figures.unranked]:
        ranks = [found.ranks.get(method) for found in rankings]
        best = sum(
            method in figures.best(one, DEFAULTS, "equal_work") for one in figures.suite.federations
        )
        rows.append([method, *(number_text(rank, ".1f") for rank in ranks), str(best)])
    note = (
        f"The mean rank over {len(figures.suite.federations)} federations; 1 is best. Equal work: "
        "after as many local steps as FedAvg takes in all rounds. Equal bytes: after as many "
        "bytes as FedAvg moves in all rounds. The last column counts the federations on which a "
        "method is the best, with defaults at equal work. The oracle known_groups is told the "
        "groups and has no rank, nor has a method that was not run on every federation."
    )
    if first.critical is not None and first.p is not None:
        note += (
            " Of the first column: if all methods were alike, ranks as different as these would "
            f"come with probability {first.p:.1g} (Friedman's test). Two methods differ if "
            f"their ranks do by {first.critical:.1f} or more (Nemenyi's test)."
        )
    heads = ["method", *(name for name, _, _ in columns), "best on"]
    return _section("Ranks", note, heads, rows)


def score_table(figures: SuiteFigures, settings: str, column: Column) -> Section:
    """The scores of every method on every federation."""

    def cell(federation: Federation, method: str) -> str:
        found = figures.figure(federation, method, settings, column)
        if found is None:
            return NONE
        scale = figures.headline(federation).scale
        text = f"{scale * found.mean:.1f}"
        if found.sd is not None:
            text += f" ± {scale * found.sd:.1f}"
        if found.missing:
            text += f" ({found.missing} without)"
        return text

    at = {"equal_work": "equal work", "equal_bytes": "equal bytes", "all_rounds": "all rounds"}
    title = f"Scores, {settings}, {at[column]}"
    note = _measured_by(figures)
    if column == "equal_bytes":
        note += (
            " Without a score: the budget was spent before the first one. A method that has none "
            "with some seed comes last."
        )
    if settings == TUNED:
        note += (
            " Settings were chosen by one run each, with the first seed, on training samples that "
            "were kept back; the table of settings says which. Where nothing could be tuned, the "
            "scores are those with defaults."
        )
    return _table(figures, title, note, cell)


def _measured_by(figures: SuiteFigures) -> str:
    """What the scores are, and which way is better."""
    headlines = {one.name: figures.headline(one) for one in figures.suite.federations}
    different = set(headlines.values())
    if len(different) == 1:
        (only,) = different
        return f"{only.axis}, on the clients' own test samples; {only.better} is better."
    each = ", ".join(f"{name}: {one.axis} ({one.better})" for name, one in headlines.items())
    return f"On the clients' own test samples; what is measured, and which way is better: {each}."


def planted_groups_table(figures: SuiteFigures) -> Section:
    """How well the groups agree with the planted ones, and how many were found."""

    def cell(federation: Federation, method: str) -> str:
        ari = figures.figure(federation, method, DEFAULTS, "ari")
        groups = figures.figure(federation, method, DEFAULTS, "groups")
        if groups is None:
            return NONE
        # Without planted groups there is nothing to agree with.
        return f"{_mean(ari, '.2f')} ({groups.mean:.1f})"

    note = (
        "Adjusted Rand index between a method's groups and the planted ones in the last round "
        "(1: the same, 0: as by chance), and in brackets how many groups have members."
    )
    return _table(figures, "Groups found", note, cell)


def cost_table(figures: SuiteFigures) -> Section:
    """What each method costs, as multiples of FedAvg, and how long its grouping takes."""
    rows = []
    for method in figures.methods:
        moved = figures.relative(method, DEFAULTS, "bytes")
        trained = figures.relative(method, DEFAULTS, "steps")
        times = [
            [figures.figure(one, method, DEFAULTS, name) for one in figures.suite.federations]
            for name in ("grouping", "run")
        ]
        means = [Spread.of(one.mean for one in found if one) for found in times]
        relative = [number_text(value, ".2f") for value in (moved, trained)]
        rows.append([method, *relative, *(_mean(one, ".2f") for one in means)])
    note = (
        "Means over the federations, with defaults and all rounds: bytes and local steps as "
        "multiples of FedAvg's, seconds of grouping, and seconds of the whole run without its "
        "evaluation. A further model of its own that a client trains is not counted."
    )
    columns = ["method", "bytes / FedAvg's", "steps / FedAvg's", "grouping, s", "run, s"]
    return _section("Costs", note, columns, rows)


def settings_table(figures: SuiteFigures) -> Section:
    """Which settings were chosen, and of how many."""
    federations = figures.suite.federations
    rows = []
    for method in figures.methods:
        entries = [figures.entry(one, method, TUNED) or {"trials": 0} for one in federations]
        trials = sorted({one["trials"] for one in entries if one["trials"]})
        chosen = [_setting_of(one) for one in entries]
        rows.append([method, ", ".join(map(str, trials)) or NONE, *chosen])
    note = (
        "What the tuned columns have: the learning rate and the options that were best among those "
        "that the suite tries. Each trial is one run on a federation."
    )
    columns = ["method", "trials", *(one.name for one in federations)]
    return _section("Settings chosen", note, columns, rows)


def _setting_of(entry: Entry) -> str:
    if not entry["trials"]:
        return NONE
    return Setting(entry["options"], entry["rate"]).text


def refusals(figures: SuiteFigures) -> list[tuple[str, str]]:
    """What could not be run, and why; methods with the same reason together."""
    methods: dict[tuple[str, str], list[str]] = {}
    for entry in figures.entries:
        if entry["refused"] and entry["settings"] == DEFAULTS:
            methods.setdefault((entry["federation"], entry["refused"]), []).append(entry["method"])
    return [
        (f"{', '.join(names)} on {federation}", why) for (federation, why), names in methods.items()
    ]


def _table(
    figures: SuiteFigures, title: str, note: str, cell: Callable[[Federation, str], str]
) -> Section:
    federations = figures.suite.federations
    rows = [[method, *(cell(one, method) for one in federations)] for method in figures.methods]
    return _section(title, note, ["method", *(one.name for one in federations)], rows)


def _mean(found: Spread | None, digits: str) -> str:
    if found is None:
        return NONE
    return format(found.mean, digits)
