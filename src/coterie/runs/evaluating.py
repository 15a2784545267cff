"""How the clients of a run are scored beside the usual way, fitted to its network and its data."""

from __future__ import annotations

from collections.abc import Iterable

from coterie.config.problems import Problem, refuse
from coterie.core.keys import Key
from coterie.core.objective import Objective, Reshaping
from coterie.core.work import Train
from coterie.measures.own_models import Adaptation
from coterie.measures.unseen import Unseen, unseen_clients
from coterie.methods.algorithm import Algorithm, method_of
from coterie.methods.method import Method
from coterie.methods.traits import traits_of
from coterie.objectives import plain
from coterie.runs.fitting import Fitted


def adaptation_work(adapt: Adaptation | None, fitted: Fitted) -> Train | None:
    """The training after which clients are scored, too; ``None``: there is none."""
    if adapt is None:
        return None
    check_scores(fitted.algorithm, ("adapt",))
    return adapt.work(fitted.network.module, _objective(fitted))


def unseen_ids(unseen: Unseen | None, fitted: Fitted, seed: int) -> tuple[int, ...]:
    """The numbers of the clients that never train, ascending."""
    if unseen is None:
        return ()
    check_scores(fitted.algorithm, ("unseen",))
    return tuple(unseen_clients(unseen, fitted.population, Key(seed)).tolist())


def scores_local(local: bool, fitted: Fitted) -> bool:
    """Whether each client is also scored with the network that it trained last."""
    if local:
        check_scores(fitted.algorithm, ("local",))
    return local


def check_scores(made: Method | Algorithm, asked: Iterable[str]) -> None:
    """Refuse ways of scoring that a method's clients do not have.

    Args:
        made: a method; an algorithm with a step of its own is not asked.

    Example:
        >>> from coterie.algorithms import fedem
        >>> check_scores(fedem(groups=2), ["local"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        coterie.errors.ConfigError: evaluate.local: clients predict with several models, got '2 models'; ...
    """
    method = method_of(made)
    if method is None:
        return
    expected = "another algorithm, or none of it"
    for key in asked:
        path = f"evaluate.{key}"
        # The one client that has all data is scored by its last network as any other is.
        if "data" in traits_of(method) and key != "local":
            refuse(Problem(path, "the method has all data in one place", "pooled", expected))
        if method.local.mixture:
            what = "clients predict with several models"
            refuse(Problem(path, what, f"{method.groups} models", expected))


def _objective(fitted: Fitted) -> Objective:
    """What an adapted model minimises: the loss of the task, without what a method adds to it."""
    method = method_of(fitted.algorithm)
    # A network that the objective has changed can be trained by this objective alone.
    if method is not None and isinstance(method.local.objective, Reshaping):
        return method.local.objective
    return plain
