"""What is read off a run's rows and summary, in the units of the papers' tables, and what a method
costs by FedGSP's formulas of time and traffic (eq. 15 to 17), with the paper's constants.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from coterie.config import registry
from coterie.measures.costs import Costs, GroupsInRound, constant, growing, rounds_to_target
from coterie.runs.folder.store import RunFolder
from coterie.runs.scores import mean_of_known
from coterie.runs.summary import covered, figures_of
from coterie.studies.reproduce.papers import How, Line

# --- FedGSP's formulas ----------------------------------------------------------------------------

Quantity = Literal["t_comp", "t_comm", "d_comm"]


def _groups_in_round(algorithm: Mapping[str, Any]) -> GroupsInRound:
    """How many groups train in a round: FedGSP's grow, all others train a client each."""
    clients = Costs().clients
    if algorithm["name"] != "fedgsp":
        return constant(int(algorithm.get("groups", clients)))
    # Its defaults are those of the paper.
    defaults = {name: value for name, (_, value) in registry.options("algorithm", "fedgsp").items()}
    options = {**defaults, **algorithm}
    return growing(options["growth"], options["alpha"], options["beta"], clients)


def cost(quantity: Quantity, algorithm: Mapping[str, Any], rounds: int) -> float:
    """What so many rounds of a method cost by the paper's formulas: ``t_comp``, seconds of
    computation (eq. 15); ``t_comm``, seconds of communication (eq. 16); ``d_comm``, traffic in GB
    (eq. 17)."""
    costs = Costs(kappa=algorithm.get("kappa", Costs().kappa))
    if quantity == "t_comp":
        return costs.computation(rounds, _groups_in_round(algorithm))
    if quantity == "t_comm":
        return costs.communication(rounds)
    return costs.traffic(rounds) / 1e9


# --- what is read off a run -----------------------------------------------------------------------

Row = Mapping[str, Any]
Rows = Sequence[Row]
# Of a run's rows, its summary and the line that it is for; `None` if the run does not have it.
Metric = Callable[[Rows, Row, Line], float | None]


def _percent(fraction: float | None) -> float | None:
    if fraction is None:
        return None
    return 100 * fraction


def _values(rows: Rows, key: str) -> list[float]:
    """The values of a key in the rounds that have it."""
    return [row[key] for row in rows if row.get(key) is not None]


def _last(rows: Rows, key: str) -> float | None:
    return next(reversed(_values(rows, key)), None)


def _last10(rows: Rows, summary: Row, line: Line) -> float | None:
    return _percent(summary["accuracy"]["last10_mean"])


def _median(rows: Rows, summary: Row, line: Line) -> float | None:
    """Median accuracy of the rounds in which all clients have a group, in percent."""
    # Earlier rounds score only some of the clients.
    accuracies = _values(covered(rows), "accuracy")
    if not accuracies:
        return None
    return 100 * statistics.median(accuracies)


def _test_loss(rows: Rows, summary: Row, line: Line) -> float | None:
    """Loss of the round whose accuracy is printed, the best one."""
    evaluated = [row for row in covered(rows) if row.get("test_loss") is not None]
    if not evaluated:
        return None
    best = max(evaluated, key=lambda row: row["accuracy"])
    return float(best["test_loss"])


def _loss_rise(rows: Rows, summary: Row, line: Line) -> float | None:
    """How far the loss of the last evaluated round is above the least one (FedGSP, Fig. 3c)."""
    losses = _values(covered(rows), "test_loss")
    if not losses:
        return None
    return losses[-1] - min(losses)


def _sent_bytes(rows: Rows, summary: Row, line: Line) -> float | None:
    """Everything that was sent, down and up, in bytes."""
    moved = [row["transfers"] for row in rows]
    return float(sum(one["down_bytes"] + one["up_bytes"] for one in moved))


def _cost_to_target(quantity: Quantity) -> Metric:
    """What a method costs by the paper's formulas, until its run reached the target."""

    def read(rows: Rows, summary: Row, line: Line) -> float | None:
        rounds = rounds_to_target(rows, line.target)
        if rounds is None or line.tables is None:
            return None
        return cost(quantity, line.tables["algorithm"], rounds)

    return read


METRICS: Mapping[str, Metric] = {
    "max": lambda rows, summary, line: _percent(summary["accuracy"]["max"]),
    "last10": _last10,
    # The mean of the evaluations in the last ten rounds, however many of them were evaluated.
    "end": lambda rows, _, line: _percent(mean_of_known(_values(rows[-10:], "accuracy"))),
    "median": _median,
    # Means over the clients in the last evaluated round; the second is of their last local networks.
    "mean_local": lambda rows, _, line: _percent(_last(rows, "accuracy_mean")),
    "mean_last_local": lambda rows, _, line: _percent(_last(rows, "accuracy_local_mean")),
    "rounds_to": lambda rows, _, line: rounds_to_target(rows, line.target),
    "discrepancy_mean": lambda rows, _, line: mean_of_known(_values(rows, "discrepancy")),
    # The variance of all rounds of a run, which are no sample of more of them.
    "discrepancy_var": lambda rows, _, line: statistics.pvariance(
        _values(rows, "discrepancy") or [0.0]
    ),
    "transfers": lambda rows, _, line: float(sum(row["transfers"]["flexcfl"] for row in rows)),
    "sent_bytes": _sent_bytes,
    "test_loss": _test_loss,
    "loss_rise": _loss_rise,
    "t_comp": _cost_to_target("t_comp"),
    "t_comm": _cost_to_target("t_comm"),
    "d_comm": _cost_to_target("d_comm"),
}


def compared(how: How, value: float, other: float) -> float:
    """A metric of a run against that of the other run.

    Example:
        >>> compared("difference", 95, 90), compared("ratio", 3, 2)
        (5, 1.5)
    """
    if how == "difference":
        return value - other
    return value / other


def read_run(folder: Path, line: Line) -> tuple[float | None, float | None]:
    """What a line reads off the run in a folder: its metric, and the mean of the last ten evaluated
    rounds."""
    run = RunFolder(folder)
    rows = run.rows()
    summary: dict[str, Any] = run.results.summary() or {}
    if line.until:
        # As if the run had ended there: a run has one row a round.
        rows = rows[: line.until]
        summary["accuracy"] = figures_of(rows)
    return METRICS[line.metric](rows, summary, line), _last10(rows, summary, line)
