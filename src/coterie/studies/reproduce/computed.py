"""Lines that follow from formulas, or from the data alone, without training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.errors import DataError
from coterie.models import spec
from coterie.runs.compose import compose
from coterie.runs.data import load_data
from coterie.studies.reproduce.data_lines import cpd_cut, layer_distances, measure_pairs, sent_ratio
from coterie.studies.reproduce.datasets import missing_data
from coterie.studies.reproduce.metrics import Quantity, cost
from coterie.studies.reproduce.outcome import Outcome
from coterie.studies.reproduce.papers import Line

Formula = Callable[[Line, str | None], float]

LOADING_SECONDS = 1.5  # to read the data of a line
TRAINING_SECONDS = 4.0  # to train every client once, in addition to that


# --- FlexCFL, Fig. 6: model-sized transfers -------------------------------------------------------
# N clients, K of them in each of T rounds, and m groups.


def fedavg_transfers(N: int, K: int, T: int, **_: Any) -> float:
    """Transfers of FedAvg: ``2 K T``, one down and one up for each participant. FeSEM has the same."""
    return 2 * K * T


def flexcfl_transfers(
    N: int, K: int, T: int, m: int, alpha: int, eta_g: bool = False, **_: Any
) -> float:
    """Transfers of FlexCFL: ``2 K T + N m + 2 alpha m``, with inter-group aggregation ``m T`` more."""
    transfers = 2 * K * T + N * m + 2 * alpha * m
    if eta_g:
        transfers += m * T
    return transfers


def ifca_transfers(N: int, K: int, T: int, m: int, **_: Any) -> float:
    """Transfers of IFCA: ``K (m + 1) T``, all models down and one up for each participant."""
    return K * (m + 1) * T


def ifca_mig_transfers(N: int, K: int, T: int, m: int, p: float, **_: Any) -> float:
    """Transfers of IFCA with migration: ``K (m + 1) T``, and ``m`` for each client that moves.

    A swap moves a share ``p`` of the pairs of known clients, of which there are ``K`` more each
    round.
    """
    moved = 0.0
    for t in range(T):
        # Only clients that were met have a group to move from, at most K new ones a round.
        pairs = min(N, K * t) // 2
        moved += p * 2 * pairs
    return ifca_transfers(N=N, K=K, T=T, m=m) + m * moved


def _relative(transfers: Callable[..., float]) -> Formula:
    """Transfers of a method as a multiple of FedAvg's."""
    return lambda line, root: transfers(**line.arguments) / fedavg_transfers(**line.arguments)


def _eta_extra(line: Line, root: str | None) -> float:
    """What inter-group aggregation adds to FlexCFL's transfers, in percent."""
    with_eta = flexcfl_transfers(**line.arguments, eta_g=True)
    return 100 * (with_eta / flexcfl_transfers(**line.arguments) - 1)


# --- FedGSP, Fig. 6: time and traffic -------------------------------------------------------------


def _cost(quantity: Quantity) -> Formula:
    """What the rounds of a line cost by FedGSP with the paper's settings, or by FedAvg."""

    def compute(line: Line, root: str | None) -> float:
        name = "fedgsp" if line.arguments["growth"] == "log" else "fedavg"
        return cost(quantity, {"name": name}, line.arguments["rounds"])

    return compute


def _time_saved(line: Line, root: str | None) -> float:
    """What FedGSP saves of FedAvg's time, in percent: it needs fewer rounds."""
    fedgsp = _seconds("fedgsp", line.arguments["rounds"])
    fedavg = _seconds("fedavg", line.arguments["against"])
    return 100 * (1 - fedgsp / fedavg)


def _seconds(name: str, rounds: int) -> float:
    algorithm = {"name": name}
    return cost("t_comp", algorithm, rounds) + cost("t_comm", algorithm, rounds)


def _traffic_saved(line: Line, root: str | None) -> float:
    """What FedGSP saves of FedAvg's traffic, in percent: a round of both moves the same."""
    return 100 * (1 - line.arguments["rounds"] / line.arguments["against"])


# --- data and models ------------------------------------------------------------------------------


def _parameters(line: Line, root: str | None) -> float:
    config = line.config(root)
    network = spec(config.name("model"), **config.options("model"))
    return network.count(tuple(line.arguments["shape"]), line.arguments["classes"])


def _clients(line: Line, root: str | None) -> float:
    _, _, population = load_data(line.config(root))
    return population.clients


def _samples(line: Line, root: str | None) -> float:
    _, _, population = load_data(line.config(root))
    return float(population.sizes("train").sum() + population.sizes("test").sum())


FORMULAS: Mapping[str, Formula] = {
    "parameters": _parameters,
    "clients": _clients,
    "samples": _samples,
    "t_comp": _cost("t_comp"),
    "t_comm": _cost("t_comm"),
    "d_comm": _cost("d_comm"),
    "time_saved": _time_saved,
    "traffic_saved": _traffic_saved,
    "ifca": _relative(ifca_transfers),
    "fesem": _relative(fedavg_transfers),
    "ifca_mig": _relative(ifca_mig_transfers),
    "flexcfl": _relative(flexcfl_transfers),
    "flexcfl_eta": _eta_extra,
    "sent": sent_ratio,
    "cpd_cut": cpd_cut,
}
TRAIN = frozenset({"madc_edc", "separation"})
NEED_DATA = frozenset({"clients", "samples", "cpd_cut"}) | TRAIN


def seconds_of(line: Line) -> float:
    """About how long a computed line takes on two cores; 0 for a line with a run."""
    if line.compute in TRAIN:
        return LOADING_SECONDS + TRAINING_SECONDS
    if line.compute in NEED_DATA:
        return LOADING_SECONDS
    return 0.0


def compute_line(line: Line, root: str | None = None) -> Outcome:
    """The result of a line that needs no run."""
    if line.compute in NEED_DATA:
        missing = missing_data(line.config(root))
        if missing:
            return Outcome(line, problem=missing)
    try:
        if line.compute == "madc_edc":
            # The value says how well a line fits the points that are drawn.
            pairs = measure_pairs(compose(line.config(root)))
            return Outcome(line, (pairs.correlation,), points=pairs.sample())
        if line.compute == "separation":
            return layer_distances(line, root)
        return Outcome(line, (float(FORMULAS[line.compute](line, root)),))
    except DataError as error:
        return Outcome(line, problem=" ".join(str(error).split()))
