"""A method whose server uses noised sums of updates: what it must not read, how cohorts are drawn,
and what its rounds spend."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from coterie.clients.cohort import Sampler
from coterie.config.arguments import check_fields
from coterie.core.keys import Key, system_secret
from coterie.core.traits import Excluded, Feature, of_traits
from coterie.errors import ConfigError, PrivacyError, Problem
from coterie.methods.method import Method
from coterie.privacy.accounting import (
    LARGEST_NOISE,
    LEAST_NOISE,
    Accountant,
    Budget,
    Release,
    epsilon_of,
    least_noise,
)
from coterie.privacy.noise import PrivateSums, Rebalanced, noised
from coterie.rules.assigning import StartsPrivately
from coterie.rules.weighing import evenly

Above = Annotated[float, Field(gt=0)]
# With less noise one release costs an epsilon of half a million.
Noise = Annotated[float, Field(ge=LEAST_NOISE, le=LARGEST_NOISE)]
Probability = Annotated[float, Field(gt=0, lt=1)]
# Epsilons are bounds that were computed to about five digits.
_ROUNDING = 1e-6

_SINGLE = "with these options, its server needs individual updates or statistics of clients"
_KNOWN_GROUPS = "needs groups that are known before clients train"
_UPDATES = "needs individual updates of clients"
_REGROUPS = "hides the individual updates by which the method groups clients"
_PART = "clips whole updates, not parts of them"
PRIVACY = Feature(
    "with [privacy]",
    {"privacy": ()},
    (
        *of_traits(
            "algorithm.name",
            "a method that needs only sums, such as fedavg, fedprox or ifca, or no [privacy]",
            {"own_step": _SINGLE, "reads_clients": _SINGLE},
        ),
        # One client must not change what another one counts, or how many are counted: so nothing
        # may compare clients.
        Excluded("attack", "attackers' updates depend on those of others"),
        Excluded("shift", "moves data between clients"),
        Excluded("algorithm.groups", _UPDATES, "a number, or no [privacy]", None, "counts_groups"),
        Excluded("algorithm.measure", _UPDATES, "'edc', or no [privacy]", None, "compares_pairs"),
        Excluded("algorithm.ablation", _UPDATES, "'none', or no [privacy]", None, "draws_centres"),
        Excluded("algorithm.outliers", _UPDATES, "'keep', or no [privacy]", None, "leaves_out"),
        Excluded("algorithm.newcomer", _UPDATES, "'w0_frozen', or no [privacy]", None, "newcomers"),
        # Who begins depends on who trains already, and an update is used rounds after its client
        # was drawn: neither is what the budget counts.
        Excluded("asynchronous", "updates change models after the round that drew their clients"),
        Excluded(
            "bounds.enabled", "compares clients with each other", "false, or no [bounds],", (False,)
        ),
        # A client reports its drift to the server without noise, and may change its group by that.
        Excluded(
            "migration.detector",
            "the budget does not count what drift reveals about a client",
            "'none'",
            ("none",),
            "migrates",
        ),
        *of_traits(
            "privacy",
            "a method whose clients send one whole update each, or no [privacy]",
            {
                # What stays with a client is added to its model after the sums, and would not be
                # clipped.
                "uploads_a_part": _PART,
                "keeps_layers": _PART,
                "mixture": "clips one update of each client, not those of several models",
                # SCAFFOLD's server takes the number of steps of each client from its update.
                "moves_second_vector": "sees only the noisy sum of updates, but the server also needs "
                "each client's update and number of steps, for its second vector",
            },
        ),
        # A rule of weights by samples is replaced: a client could claim as many as it likes. Also
        # `by_size`, though it is the default without privacy: all clients would count the same.
        Excluded(
            "weigh.name",
            "not a sum in which all clients have the same weight",
            "'evenly', or no [weigh],",
            ("evenly",),
            "weighs_unevenly",
        ),
        Excluded(
            "privacy", _REGROUPS, "a method that needs only sums, or no [privacy]", None, "regroups"
        ),
        # A temperature of the exported models comes from these sums.
        Excluded("train.hold_out", "calibration adds up clients' counts without noise", "no value"),
        Excluded(
            "quorum.min_replies", "a skipped round reveals how many clients replied", "1", (1,)
        ),
        Excluded(
            "train.over_selection",
            "speed decides which clients count, but the budget covers those drawn",
            "1",
            (1,),
        ),
        # A function of the user's own may draw as it likes, and the first rounds of the default
        # sampler are no draw at all: in both an accountant would count an amplification that is not
        # there.
        Excluded(
            "train.sampler",
            "the budget covers cohorts that are drawn at random",
            "'poisson' or 'uniform'",
            ("poisson", "uniform"),
        ),
    ),
)
UNIFORM_COHORTS = Feature(
    "with cohorts of a fixed size and [privacy]",
    {"privacy": (), "train.sampler": ("uniform",)},
    (
        Excluded(
            "privacy.accountant", "does not support sampling without replacement", "'rdp'", ("rdp",)
        ),
        # A client that can be reached is drawn more often than the `n` of `N` that is counted.
        Excluded("availability", "cohorts are drawn from fewer clients than are counted"),
        Excluded("data.encode.noise", "cannot be counted with these cohorts", "no noise"),
        Excluded(
            "train.sampler",
            "a private cold start draws clients one by one, and cannot be counted together with "
            "other cohorts",
            "'poisson'",
            None,
            "starts_privately",
        ),
    ),
)
SMALL_GROUPS = Feature(
    "with privacy.least_group",
    {"privacy": (), "privacy.least_group": ()},
    (Excluded("privacy.least_group", _KNOWN_GROUPS, "none, or fedgroup", None, "groups_late"),),
)
NOISED_COLUMNS = Feature(
    "with data.encode.noise",
    {"data.encode.noise": ()},
    (),
    needs={"privacy": ()},
    why="requires a privacy budget, which [privacy] sets",
    instead="[privacy], or no noise",
)


NO_BUDGET = Problem("missing", "privacy.epsilon", allowed="a number, or privacy.noise")


@dataclass(frozen=True, slots=True)
class Privacy:
    """Differential privacy of updates: the table ``[privacy]``.

    Args:
        epsilon: the total budget of the run; ``None``: the cost of the given noise.
        delta: the guarantee is ``(epsilon, delta)``.
        noise: standard deviation of the noise in multiples of the clip; ``None``: the least that
            ``epsilon`` allows.
        clip: the longest update that counts in full; with a quantile, the clip of the first round.
        quantile: the quantile of the lengths of updates that the clip follows; ``None``: the clip
            is constant.
        start_noise: noise of a whole cold start, as a multiple of the noise of a round.
        least_group: number of clients in a round that each group should have: clients of larger
            groups train the models of smaller ones; ``None``: no client moves.
        accountant: ``pld`` or ``rdp``, see `coterie.privacy.accounting`.
        randomness: source of the noise and the cohorts: ``system``, a secret of the operating
            system, or ``seed_not_private``, so that a run can be repeated: whoever knows the seed
            can remove the noise.

    Raises:
        ConfigError: for a value out of its range, or if neither ``epsilon`` nor ``noise`` is set.

    Example:
        >>> Privacy(epsilon=8.0, clip=0.5).delta
        1e-05
    """

    epsilon: Annotated[float, Field(gt=0, le=1e5)] | None = None
    # Distributions of losses leave out tails of 1e-15.
    delta: Annotated[float, Field(ge=1e-12, lt=1)] = 1e-5
    noise: Noise | None = None
    # Longer updates are refused, whatever the clip.
    clip: Annotated[float, Field(gt=0, le=1e15)] = 1.0
    quantile: Probability | None = None
    start_noise: Noise = 1.0
    least_group: Above | None = None
    accountant: Accountant = "pld"
    randomness: Literal["system", "seed_not_private"] = "system"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.epsilon is None and self.noise is None:
            raise ConfigError.of([NO_BUDGET])


@dataclass(frozen=True, slots=True)
class Repeats:
    """What earlier processes of the same run released already: rounds and cold starts that are done
    again."""

    process: int = 0
    rounds: int = 0
    starts: int = 0

    def stream(self, privacy: Privacy, seed: int, secret: Key | None) -> Key | None:
        """The stream of noise and cohorts; ``None``: the run's own."""
        if privacy.randomness == "system":
            return secret or system_secret()
        # The same noise on other replies: their difference would be what one client sent.
        if self.process:
            return Key(seed).of(f"process/{self.process}")
        return None


def make_private(
    method: Method,
    privacy: Privacy,
    sampler: Sampler,
    rounds: int,
    seed: int,
    columns: Release | None = None,
    repeats: Repeats = Repeats(),
    secret: Key | None = None,
) -> tuple[Method, Sampler, Budget]:
    """The method with noised sums in place of its weighted means, its cohorts, and what they spend.

    All clients of a group count the same, whatever the method's own weighing. `PRIVACY` and
    `SMALL_GROUPS` must allow the method. ``repeats``: of real clients, where the run was stopped.
    ``secret``: the one of a run with ``randomness = "system"``; ``None``: a new one.

    Raises:
        PrivacyError: if the rounds would spend more than allowed.
    """
    # Cohorts from the same stream: whoever knew them would undo what sampling gains.
    secret = repeats.stream(privacy, seed, secret)
    if secret is not None:
        sampler = replace(sampler, key=secret)
    assign = method.assign
    rate = None
    if isinstance(assign, StartsPrivately):
        rate = min(1.0, assign.start_size() / len(sampler.clients))
    noise, budget = _plan(privacy, sampler, rounds, rate, columns)
    budget = budget.with_repeats(repeats.rounds, repeats.starts)
    _check_budget(budget, privacy, rounds, noise)
    counts = privacy.least_group is not None
    sums = PrivateSums(privacy.clip, noise, sampler.per_round, privacy.quantile, counts, secret)
    if isinstance(assign, StartsPrivately):
        assert rate is not None
        noise_of_start = noise * privacy.start_noise
        assign = assign.with_private_start(noise_of_start, rate, len(sampler.clients), secret)
    if privacy.least_group is not None:
        assign = Rebalanced(assign, privacy.least_group, secret)
    method = replace(method, assign=assign, aggregate=noised(sums), weigh=evenly)
    return method, sampler, budget


# --- cohorts --------------------------------------------------------------------------------------


# --- what rounds spend ----------------------------------------------------------------------------


def _plan(
    privacy: Privacy,
    sampler: Sampler,
    rounds: int,
    start_rate: float | None,
    columns: Release | None,
) -> tuple[float, Budget]:
    """The noise of a round, and what the rounds spend."""
    # One client more or less moves the sums by a clip, one in the place of another by two.
    if sampler.kind == "poisson":
        unit = Release(1.0, sampler.rate)
    else:
        population = len(sampler.clients)
        unit = Release(1 / 2, (min(sampler.per_round, population), population))
    start: tuple[Release, ...] = ()
    if start_rate is not None:
        start = (Release(privacy.start_noise, start_rate),)
    described: tuple[Release, ...] = ()
    if columns is not None:
        _check_cost(columns, privacy)
        described = (columns,)
    noise = privacy.noise
    if noise is None:
        assert privacy.epsilon is not None
        all_of_it = (*start, replace(unit, count=rounds))
        noise = least_noise(
            all_of_it, privacy.epsilon, privacy.delta, privacy.accountant, described
        )
    each = replace(unit, noise=noise * unit.noise)
    before = tuple(replace(one, noise=noise * one.noise) for one in start)
    return noise, Budget(each, privacy.delta, privacy.accountant, (*described, *before))


def _check_cost(columns: Release, privacy: Privacy) -> None:
    """Refuse a description of columns that alone costs more than the run may spend."""
    if privacy.epsilon is None:
        return
    spent = epsilon_of((columns,), privacy.delta, privacy.accountant)
    if spent >= privacy.epsilon:
        what = (
            f"the reports on columns alone cost {spent:.4g} at delta {privacy.delta:g} with noise "
            f"{columns.noise:g}, more than the budget of {privacy.epsilon:g}"
        )
        do = "raise it, or raise data.encode.noise"
        raise PrivacyError("over-budget", "privacy.epsilon", what, do=do)


def _check_budget(budget: Budget, privacy: Privacy, rounds: int, noise: float) -> None:
    # A noise without a budget: the rows say what it costs.
    if privacy.epsilon is None:
        return
    spent = budget.epsilon(rounds)
    if spent <= privacy.epsilon * (1 + _ROUNDING):
        return
    again = ""
    expected = f"at least {spent:.4g}, fewer rounds, or more noise"
    if budget.repeated:
        again = f" and {budget.repeated} done again"
        expected = "a run that was not stopped while its models were sent"
    what = (
        f"{rounds} rounds{again} with noise {noise:g} cost {spent:.4g} at delta {privacy.delta:g}"
    )
    raise PrivacyError(
        "over-budget", "privacy.epsilon", what, got=privacy.epsilon, allowed=expected
    )
