"""What a run of real clients computes, known before any of them is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.clients.cohort import Sampler
from coterie.config import RunConfig
from coterie.core.keys import Key
from coterie.deploy.attendance import everyone_there
from coterie.deploy.federation_spec import FederationSpec
from coterie.deploy.releases import check_private_deployment
from coterie.deploy.settings import DeploymentSettings, check_encoding, require_cohort
from coterie.runs.configured import make_bounds, make_quorum
from coterie.runs.participation import asked_clients
from coterie.runs.schedule import Evaluation
from coterie.runs.spec import RunSpec


def configured_spec(federation: FederationSpec, settings: DeploymentSettings) -> RunSpec:
    """The run as its configuration says, whatever nodes are connected.

    Args:
        federation: network and method.
        settings: of the deployment.
    """
    config = federation.config
    train = config.train
    everyone = np.arange(settings.clients)
    asked = asked_clients(train.clients_per_round, train.over_selection, settings.clients)
    return RunSpec(
        federation.algorithm,
        everyone_there(settings),
        federation.network,
        rounds=train.rounds,
        seed=config.seed,
        sampler=Sampler(train.sampler, everyone, asked, Key(config.seed)),
        local=federation.solver,
        quorum=make_quorum(config),
        evaluation=Evaluation(
            every=train.evaluate_every,
            clients=train.evaluate_clients,
            loss=train.evaluate_loss,
            task=federation.task,
            order=config.evaluate.order or "before",
        ),
        bounds=make_bounds(config),
    )


def check_before_submitting(config: RunConfig, settings: DeploymentSettings) -> None:
    """Refuse a run that the server would refuse, before anything is sent to it.

    Args:
        config: of the run.
        settings: of the deployment.

    Raises:
        ConfigError: for what real clients cannot do.
        PrivacyError: if the rounds would spend more than allowed.
    """
    require_cohort(config, settings.clients)
    form = settings.form
    if form.columns:
        check_encoding(config)
        # How many inputs there will be is known when clients have reported of their columns.
        form = replace(form, shape=(len(form.columns),))
    federation = FederationSpec.of(config, form)
    check_private_deployment(configured_spec(federation, settings), config)
