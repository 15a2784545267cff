"""What a run of real clients computes, known before any of them is there."""

from __future__ import annotations

from dataclasses import replace

from coterie.deploy.attendance import everyone_there
from coterie.deploy.federation_spec import FederationSpec
from coterie.deploy.releases import check_private_deployment
from coterie.deploy.settings import DeploymentSettings, check_encoding, require_cohort
from coterie.experiment import Experiment
from coterie.runs.compose import spec_of
from coterie.runs.fitting import Fitted
from coterie.runs.schedule import Participation
from coterie.runs.spec import RunSpec


def configured_spec(federation: FederationSpec, settings: DeploymentSettings) -> RunSpec:
    """The run as its configuration says, whatever nodes are connected."""
    fitted = Fitted(
        federation.algorithm,
        federation.task,
        federation.network,
        everyone_there(settings),
        federation.solver,
    )
    spec = spec_of(federation.config, fitted, order="before")
    # Real clients come and go, and take their time, by themselves.
    return replace(spec, participation=Participation())


def check_before_submitting(config: Experiment, settings: DeploymentSettings) -> None:
    """Refuse a run that the server would refuse, before anything is sent to it."""
    require_cohort(config, settings.clients)
    form = settings.form
    if form.columns:
        check_encoding(config)
        # How many inputs there will be is known when clients have reported of their columns.
        form = replace(form, shape=(len(form.columns),))
    federation = FederationSpec.of(config, form)
    check_private_deployment(configured_spec(federation, settings), config)
