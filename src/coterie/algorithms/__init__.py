"""The methods that come with Coterie: a file for each paper, its rule and its factory together.

The imports below are the registry. To add a method, write its file and import its factory here, in
the place that it shall have in lists of methods. All else reads them from here:
configurations, ``coterie.NAME``, shell completion, the tables of the README and the documentation,
and the contract tests.
"""

from collections.abc import Callable
from functools import wraps
from inspect import isfunction, signature
from typing import TYPE_CHECKING, Any

from coterie.core.own_model import OwnModel
from coterie.methods.method import Method

# isort: off
from coterie.algorithms.fedavg import fedavg as fedavg
from coterie.algorithms.fedprox import fedprox as fedprox
from coterie.algorithms.fedgroup import fedgroup as fedgroup
from coterie.algorithms.fedgroup import fedgrouprox as fedgrouprox
from coterie.algorithms.flexcfl import flexcfl as flexcfl
from coterie.algorithms.ifca import ifca as ifca
from coterie.algorithms.clove import clove as clove
from coterie.algorithms.cornflqs import cornflqs as cornflqs
from coterie.algorithms.lcfed import lcfed as lcfed
from coterie.algorithms.fesem import fesem as fesem
from coterie.algorithms.fedsoft import fedsoft as fedsoft
from coterie.algorithms.feddrift import feddrift as feddrift
from coterie.algorithms.fedem import fedem as fedem
from coterie.algorithms.fedrc import fedrc as fedrc
from coterie.algorithms.fedclust import fedclust as fedclust
from coterie.algorithms.pacfl import pacfl as pacfl
from coterie.algorithms.k_fed import k_fed as k_fed
from coterie.algorithms.flux import flux as flux
from coterie.algorithms.feroma import feroma as feroma
from coterie.algorithms.flhc import flhc as flhc
from coterie.algorithms.sr_fca import sr_fca as sr_fca
from coterie.algorithms.stocfl import stocfl as stocfl
from coterie.algorithms.fedgwc import fedgwc as fedgwc
from coterie.algorithms.auxo import auxo as auxo
from coterie.algorithms.cfl import cfl as cfl
from coterie.algorithms.cfl_gp import cfl_gp as cfl_gp
from coterie.algorithms.known_groups import known_groups as known_groups
from coterie.algorithms.fedopt import fedavgm as fedavgm
from coterie.algorithms.fedopt import fedadagrad as fedadagrad
from coterie.algorithms.fedopt import fedadam as fedadam
from coterie.algorithms.fedopt import fedyogi as fedyogi
from coterie.algorithms.ida import ida as ida
from coterie.algorithms.fedmmd import fedmmd as fedmmd
from coterie.algorithms.fedfusion import fedfusion as fedfusion
from coterie.algorithms.rfedavg import rfedavg as rfedavg
from coterie.algorithms.rfedavg import rfedavg_kmeans as rfedavg_kmeans
from coterie.algorithms.rfedavg import rfedavg_optimal as rfedavg_optimal
from coterie.algorithms.fedgsp import fedgsp as fedgsp
from coterie.algorithms.naive_gsp import naive_gsp as naive_gsp
from coterie.algorithms.astraea import astraea as astraea
from coterie.algorithms.fedper import fedper as fedper
from coterie.algorithms.fedrep import fedrep as fedrep
from coterie.algorithms.lg_fedavg import lg_fedavg as lg_fedavg
from coterie.algorithms.fedbn import fedbn as fedbn
from coterie.algorithms.ditto import ditto as ditto
from coterie.algorithms.apfl import apfl as apfl
from coterie.algorithms.pfedme import pfedme as pfedme
from coterie.algorithms.perfedavg import perfedavg as perfedavg
from coterie.algorithms.fedala import fedala as fedala
from coterie.algorithms.scaffold import scaffold as scaffold
from coterie.algorithms.moon import moon as moon
from coterie.algorithms.fedrod import fedrod as fedrod
from coterie.algorithms.local import local as local
from coterie.algorithms.pooled import pooled as pooled
# isort: on


def _naming_itself(name: str, factory: Callable[..., Method]) -> Callable[..., Method]:
    """The factory, whose methods say how it was called, so that a run folder can name them."""

    @wraps(factory)
    def make(*args: Any, **kwargs: Any) -> Method:
        method = factory(*args, **kwargs)
        called = signature(factory).bind(*args, **kwargs).arguments
        # Frozen records set their own fields this way.
        object.__setattr__(method, "made_by", {"name": name, **called})
        return method

    return make


# Type checkers cannot follow what is computed here. For them `import X as X` makes a name public.
ALGORITHMS: dict[str, Callable[..., Any]] = {
    name: _naming_itself(name, value)
    for name, value in list(globals().items())
    if isfunction(value) and value.__module__.startswith(f"{__name__}.")
}
globals().update(ALGORITHMS)


def _own_model_of(factory: Callable[..., Method]) -> Callable[..., OwnModel]:
    """The factory of what a method's clients have of their own, with the options of the method."""

    @wraps(factory)
    def make(*args: Any, **kwargs: Any) -> OwnModel:
        rule = factory(*args, **kwargs).local.own_model
        assert rule is not None, "the method does not give clients their own models"
        return rule

    return make


# The methods whose clients' part ``[own_model]`` brings into another method.
OWN_MODELS: dict[str, Callable[..., OwnModel]] = {
    name: _own_model_of(ALGORITHMS[name])
    for name in ("ditto", "apfl", "pfedme", "perfedavg", "fedala", "moon", "fedrod")
}

if not TYPE_CHECKING:
    __all__ = ["ALGORITHMS", *ALGORITHMS]
