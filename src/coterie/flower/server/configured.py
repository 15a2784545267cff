"""What a run of real clients computes, known before any of them is there, with the noise that its
privacy asks for.

Rounds whose noised sums were released are on disk, whatever ended the server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coterie.clients.round import Round
from coterie.core.groups import Groups
from coterie.core.served import Served
from coterie.errors import CheckpointError
from coterie.experiment import Experiment
from coterie.experiment.defaults import fit_defaults
from coterie.files import MALFORMED, read_json
from coterie.flower.federation_spec import FederationSpec, parse_config
from coterie.flower.settings import DeploymentSettings
from coterie.methods.algorithm import Algorithm
from coterie.methods.first_models import InitialModels
from coterie.privacy.private import Repeats
from coterie.runs.fitting import private_spec
from coterie.runs.folder.digests import RELEASES
from coterie.runs.folder.store import RunFolder
from coterie.runs.resume import refuse_rounds
from coterie.runs.spec import RunSpec


@dataclass(frozen=True, slots=True)
class ServerInput:
    """What the server's app was started with."""

    config: Experiment
    settings: DeploymentSettings
    out: Path
    resume: bool

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ServerInput:
        """From the app's own values: ``config`` (TOML), ``settings`` (JSON), ``out`` and
        ``resume``."""
        settings = DeploymentSettings.loads(str(values["settings"]))
        config = fit_defaults(parse_config(str(values["config"])), settings.clients)
        return cls(config, settings, Path(str(values["out"])), bool(values["resume"]))


# --- private sums ---------------------------------------------------------------------------------

NODES_KNOW_THE_SEED = (
    "privacy.randomness: the noise is generated from the seed, which nodes receive; without this "
    "key it is generated from a secret of the server"
)


@dataclass(slots=True)
class Releases:
    """The file ``releases.json`` of a run: the rounds that were released, in order.

    A round is written down when its models have moved, before any client is sent them. If the
    server is killed between that and its checkpoint, the round is done again with other noise, and
    both count: the round is listed twice.
    """

    folder: RunFolder
    rounds: list[int] = field(default_factory=list)
    processes: int = 0

    @classmethod
    def of(cls, folder: RunFolder) -> Releases:
        """What the file says; nothing where there is none."""
        data = folder.file(RELEASES)
        if data is None:
            return cls(folder)
        try:
            kept = read_json(data)
            return cls(folder, [int(number) for number in kept["rounds"]], int(kept["processes"]))
        except MALFORMED:
            file = folder.path / RELEASES
            raise CheckpointError("damaged", file, found="no list of rounds") from None

    def begin(self, done: int) -> Repeats:
        """Note that a process goes on with the run after ``done`` rounds."""
        again = max(0, len(self.rounds) - done)
        # The first round of a run that goes on after it counts once.
        starts = max(0, self.rounds.count(0) - min(done, 1))
        repeats = Repeats(self.processes, again, starts)
        # Written before the first draw: a process that is killed early has used its stream, too.
        self.processes += 1
        self._write()
        return repeats

    def add(self, number: int) -> None:
        """Note that a round is released."""
        self.rounds.append(number)
        self._write()

    def _write(self) -> None:
        record = {"processes": self.processes, "rounds": self.rounds}
        self.folder.write({RELEASES: json.dumps(record).encode()})


@dataclass(frozen=True, slots=True)
class Releasing:
    """An algorithm whose rounds are written down before anyone sees their models."""

    algorithm: Algorithm
    releases: Releases

    @property
    def samples_cohort(self) -> bool:
        """See ``Algorithm``."""
        return self.algorithm.samples_cohort

    def init(self, initial_models: InitialModels, clients: int) -> Groups:
        """See ``Algorithm``."""
        return self.algorithm.init(initial_models, clients)

    def step(self, state: Groups, round: Round) -> tuple[Groups, Mapping[str, Any]]:
        """A round, then its note."""
        found = self.algorithm.step(state, round)
        # After the step, in which only models of earlier rounds are sent, and before its models are
        # scored: of a round that ends in between no client has seen anything.
        self.releases.add(round.number)
        return found

    def serve(self, state: Groups) -> Served:
        """See ``Algorithm``."""
        return self.algorithm.serve(state)


def private_deployment(spec: RunSpec, config: Experiment, folder: RunFolder, done: int) -> RunSpec:
    """A run of real clients with noised sums, where ``[privacy]`` asks for them."""
    privacy = config.privacy
    if privacy is None:
        return spec
    # Once without repeats, so that what is refused leaves no trace in the folder.
    private_spec(spec, privacy)
    releases = Releases.of(folder)
    spec = private_spec(spec, privacy, releases.begin(done))
    return replace(spec, algorithm=Releasing(spec.algorithm, releases))


# --- the whole run --------------------------------------------------------------------------------


def check_before_submitting(config: Experiment, settings: DeploymentSettings) -> None:
    """Refuse a run that the server would refuse, before anything is sent to it."""
    form = settings.form
    if form.columns:
        # How many inputs there will be is known when clients have reported of their columns.
        form = replace(form, shape=(len(form.columns),))
    private_spec(FederationSpec.of(config, form, settings.clients).run, config.privacy)


def check_rounds(folder: RunFolder, config: Experiment, done: int) -> None:
    """Refuse a number of rounds to which a run cannot be changed of which so many are ``done``."""
    planned = folder.resolved["train"]["rounds"]
    if config.train.rounds != planned:
        as_planned = config.with_table("train", rounds=planned)
        refuse_rounds(as_planned, config.train.rounds, done, "--set train.rounds")
