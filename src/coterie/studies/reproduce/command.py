"""``coterie reproduce``: what it says in a terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast, get_args

from coterie.errors import ConfigError, SweepError
from coterie.studies.reproduce import page
from coterie.studies.reproduce.running import LOADING, TAKEN, Job, Reproduction, missing, seeds_of
from coterie.studies.reproduce.tables import Line, Profile, choose, paper
from coterie.terminal import columns_table, console, counted, duration, say

EVERY = 20.0  # seconds between two lines of progress within a run
WRITE = 30.0  # seconds between two writings of the page


def go(
    papers: Sequence[str],
    table: str | None,
    rows: Sequence[str],
    profile: str,
    seeds: str | None,
    out: Path,
    root: str | None,
    only_list: bool = False,
    *,
    stop: Callable[[], int] = lambda: 0,
) -> None:
    """Choose lines, say what they cost, run what is not done, write the page.

    Args:
        papers: names; none: all.
        table: one table.
        rows: rows or lines.
        profile: ``quick`` or ``full``.
        seeds: as ``0-2``; ``None``: one for the quick profile, the paper's number of them for the
            full one.
        out: folder.
        root: folder of the datasets.
        only_list: run nothing.
        stop: the number of a signal, or 0 to go on.

    Raises:
        ConfigError: for what is not known.
        SweepError: if runs failed; the page is written.
        Stopped: if ``stop`` said so.
    """
    if profile not in get_args(Profile):
        raise ConfigError(
            f"--profile: unknown, got {profile!r}; expected one of {', '.join(get_args(Profile))}"
        )
    kind = cast(Profile, profile)
    lines = choose(papers, kind, table, rows)
    if not lines:
        raise ConfigError(
            "--profile: nothing of this is in the quick one, got quick; expected --profile full, or lines by --row"
        )
    numbers = seeds_of(seeds) if seeds is not None else _seeds(lines, kind)
    made = Reproduction(lines, numbers, out / "runs", root)
    jobs, seconds = made.left()
    if only_list:
        _list(made)
    _announce(made, jobs, seconds, kind)
    if only_list:
        return
    begun = written = time.monotonic()

    def after() -> None:
        nonlocal written
        if time.monotonic() - written > WRITE:
            page.write(out, made.outcomes(), kind, numbers)
            written = time.monotonic()

    try:
        made.run(
            jobs,
            before=lambda number, job: _progress(number, len(jobs), job),
            after=after,
            stop=stop,
        )
    finally:
        text, html = page.write(out, made.outcomes(), kind, numbers)
    _close(made, text, html, time.monotonic() - begun)


def _seeds(lines: Sequence[Line], profile: Profile) -> tuple[int, ...]:
    most = max(paper(line.paper).seeds for line in lines)
    return tuple(range(most if profile == "full" else 1))


def _announce(made: Reproduction, jobs: Sequence[Job], seconds: float, profile: Profile) -> None:
    loading = sum(LOADING for line in made.lines if line.compute in ("clients", "samples"))
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    shown = ", ".join(map(str, made.seeds))
    done = len([job for job in made.jobs if not missing(job.config)]) - len(jobs)
    say(
        f"profile {profile}, seeds {shown}: {counted(len(made.lines), 'line')}, {counted(len(jobs), 'run')} to do, "
        f"{done} done; about {duration(seconds + loading)} on two cores that do nothing else ({cores} here)"
    )
    for line in dict.fromkeys(gone for job in made.jobs if (gone := missing(job.config))):
        say(f"left out: {line}")


def _list(made: Reproduction) -> None:
    rows = []
    for line, needs in zip(made.lines, made.needs, strict=True):
        jobs = [job for seed in needs for job in seed]
        state = next((f"needs {job.config.data.source}" for job in jobs if missing(job.config)), "")
        cost = "computed" if line.compute else duration(sum(job.seconds for job in jobs))
        name = f"{line.paper} {line.table} {line.name}"
        rows.append([name, page.number(line.printed, line), str(line.rounds or "-"), cost, state])
    console().print(columns_table(["line", "paper", "rounds", "alone", ""], rows), soft_wrap=True)


def _progress(number: int, count: int, job: Job) -> Callable[[], None]:
    """Says that a run begins; what it gives says now and then how far it is."""
    line, config, rounds = job.line, job.config, job.config.train.rounds
    what = f"{line.paper} {line.table} {line.name}"
    say(
        f"run {number + 1} of {count}: {config.algorithm.name} for {what}, seed {config.seed}, {rounds} rounds"
    )
    said = time.monotonic()
    done = 0

    def tell() -> None:
        nonlocal said, done
        done += 1
        if time.monotonic() - said > EVERY:
            say(f"    {done} rounds since it began or went on")
            said = time.monotonic()

    return tell


def _close(made: Reproduction, text: Path, html: Path, seconds: float) -> None:
    say(f"{page.headline(made.outcomes())}; {duration(seconds)}")
    say(f"page: {html.resolve()} and {text.name}")
    failed = {id: problem for id, problem in made.problems.items() if problem != TAKEN}
    if failed:
        lines = [f"{made.runs / id}: {problem}" for id, problem in failed.items()]
        lines.append(
            f"reproduce: runs failed, got {len(failed)} of {len(made.jobs)}; expected none"
        )
        raise SweepError("\n".join(lines))
