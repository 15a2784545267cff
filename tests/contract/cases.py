"""The methods that the contract suite runs: each registered one, and variants with other options.

A method needs no line here if its defaults suit a small federation. `same_results_cases.py` runs the
same cases in two trees, so this file uses only what both of them offer to users.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import coterie as ct
from coterie.algorithms import ALGORITHMS

Make = Callable[[int], Any]  # number of groups -> method


def default_case(factory: Callable[..., Any]) -> Make:
    """A method with its defaults, and the number of groups where it has that option."""
    if "groups" in inspect.signature(factory).parameters:
        return lambda m: factory(groups=m)
    return lambda m: factory()


# Options that suit twelve clients, and variants, named METHOD-VARIANT.
SPECIAL: dict[str, Make] = {
    "fedprox": lambda m: ct.fedprox(mu=0.1),
    "fedgroup": lambda m: ct.fedgroup(groups=m, alpha=3),
    "fedgroup-madc": lambda m: ct.fedgroup(groups=m, alpha=3, measure="madc"),
    "fedgroup-frozen": lambda m: ct.fedgroup(groups=m, alpha=2, newcomer="w0_frozen", eta_g=0.01),
    "fedgroup-continue": lambda m: ct.fedgroup(
        groups=m, alpha=2, pretrain="continue", group_init="w0"
    ),
    "fedgroup-epochs": lambda m: ct.fedgroup(
        groups=m, alpha=2, pretrain="epochs", assign_time="upfront"
    ),
    "fedgroup-rcc": lambda m: ct.fedgroup(groups=m, ablation="rcc"),
    "fedgroup-rac": lambda m: ct.fedgroup(groups=m, alpha=2, ablation="rac"),
    "fedgroup-redraw": lambda m: ct.fedgroup(groups=m, alpha=2, ablation="rac_redraw"),
    "flexcfl": lambda m: ct.flexcfl(groups=m, alpha=3),
    "flexcfl-counts": lambda m: ct.flexcfl(groups=m, alpha=2, migration="counts", eta_g=0.1),
    "flexcfl-rac": lambda m: ct.flexcfl(groups=m, alpha=2, ablation="rac"),
    "ifca-mig": lambda m: ct.ifca(groups=m, migration="per_label"),
    "fesem-flexcfl": lambda m: ct.fesem(groups=m, order="flexcfl"),
    "fesem-three": lambda m: ct.fesem(groups=m + 1),
    "fesem-mig": lambda m: ct.fesem(groups=m, migration="ordinal"),
    "fedgroup-auto": lambda m: ct.fedgroup(groups="auto", max_groups=4, alpha=3),
    "flexcfl-auto": lambda m: ct.flexcfl(groups="auto", max_groups=4, alpha=3),
    "ifca-auto": lambda m: ct.ifca(groups="auto", max_groups=4),
    "fesem-auto": lambda m: ct.fesem(groups="auto", max_groups=4, migration="per_label"),
    "cfl-splits": lambda m: ct.cfl(eps1=9.0, eps2=0.0, after=1, migration="per_label"),
    "fedgrouprox": lambda m: ct.fedgrouprox(
        groups=m, alpha=3, mu=0.1, eta_g=0.1, inter_group_rule="convex"
    ),
    "ida-factors": lambda m: ct.ida(norm="l2", intrac=True, by_size=True),
    # The small networks have no normalisation, so another layer stays in its place.
    "fedbn": lambda m: ct.fedbn(layers=("*0.bias",)),
    "fedfusion-multi": lambda m: ct.fedfusion(operator="multi"),
    "rfedavg": lambda m: ct.rfedavg(l_star=0.5),
    "rfedavg-one": lambda m: ct.rfedavg(gradient="one", eta=1.0, d_scope="scheduled", ema=0.5),
    "rfedavg-private": lambda m: ct.rfedavg(privacy="discrete_laplace", epsilon=0.5),
    "rfedavg_kmeans": lambda m: ct.rfedavg_kmeans(clusters=m),
    "rfedavg_optimal": lambda m: ct.rfedavg_optimal(l_star=0.5),
    "rfedavg_optimal-private": lambda m: ct.rfedavg_optimal(
        privacy="randomised_response", epsilon=2.0
    ),
    "fedgsp": lambda m: ct.fedgsp(beta=m, alpha=1.0, kappa=0.6),
    "fedgsp-append": lambda m: ct.fedgsp(
        beta=m, growth="linear", leftover="append", normalize=True, kappa=1.0
    ),
    "fedgsp-exact": lambda m: ct.fedgsp(
        beta=m, growth="exp", leftover="exact", init="k-means++", migration="counts"
    ),
    "naive_gsp": lambda m: ct.naive_gsp(groups=m + 1, kappa=0.6),
    "naive_gsp-icg": lambda m: ct.naive_gsp(groups=m + 1, kappa=0.6, icg=True),
    "astraea": lambda m: ct.astraea(gamma=m + 1),
    "fedclust": lambda m: ct.fedclust(),
    "fedclust-ward": lambda m: ct.fedclust(
        groups=m, linkage="ward", bias=False, warmup_epochs=1, migration="per_label"
    ),
    "pacfl": lambda m: ct.pacfl(vectors=1),
    "k_fed-two": lambda m: ct.k_fed(groups=m + 1, centres=2),
    "flux": lambda m: ct.flux(warmup_rounds=1),
    "flux-groups": lambda m: ct.flux(warmup_rounds=0, groups=m, migration="per_label"),
    "feroma": lambda m: ct.feroma(warmup_rounds=1),
    "feroma-sharp": lambda m: ct.feroma(warmup_rounds=0, draws=0, power=4),
    "auxo": lambda m: ct.auxo(share=0.1, participants=2),
    "lcfed-one": lambda m: ct.lcfed(groups=m, mu=0.0, lam=0.5, rank=1),
    "cornflqs": lambda m: ct.cornflqs(groups=m, together=2),
    "pacfl-principal": lambda m: ct.pacfl(
        angle="principal", threshold=9.0, linkage="average", migration="counts"
    ),
    "sr_fca": lambda m: ct.sr_fca(steps_alone=50, refine_every=1, least=2),
    # Their updates agree less in a group than those of a hundred samples each.
    "stocfl": lambda m: ct.stocfl(tau=0.3),
    "feddrift": lambda m: ct.feddrift(every=1, delta=0.05),
    "feddrift-alone": lambda m: ct.feddrift(every=2, delta=0.2, most=m, start="alone"),
    # Its matrix moves much among twelve clients, and has to settle before a group splits.
    "fedgwc": lambda m: ct.fedgwc(gamma=1.0, eps=0.05),
    "cfl_gp": lambda m: ct.cfl_gp(groups=m, every=3, partitions=2),
    "flhc": lambda m: ct.flhc(warmup_rounds=2),
    "flhc-l2": lambda m: ct.flhc(
        warmup_rounds=0, epochs=None, metric="l2", groups=m, migration="per_label"
    ),
}


def contract_cases() -> dict[str, Make]:
    """All cases by name.

    An earlier commit may lack a method that has a case here; what it lacks is left out.
    """
    cases = {
        name: default_case(factory) for name, factory in ALGORITHMS.items() if name not in SPECIAL
    }
    return cases | {case: make for case, make in SPECIAL.items() if method_of(case) in ALGORITHMS}


def method_of(case: str) -> str:
    """The method that a case is of."""
    return case.partition("-")[0]


# Methods that find the planted groups of the test data.
FINDS_GROUPS = [
    "fedgroup",
    "fedgroup-madc",
    "fedgroup-frozen",
    "fedgroup-epochs",
    "fedgrouprox",
    "flexcfl",
    "fedclust",
    "fedclust-ward",
    "flhc",
    "flhc-l2",
    "cfl_gp",
]
# Cases that ask clients for everything that any case asks for, and one of each family. Engines,
# workers and tasks see what is asked, and nothing else of a method. A test says if something is
# missing here.
ASK_EVERYTHING = (
    "fedavg",
    "fedgroup",
    "ifca",
    "cfl-splits",
    "fedclust",
    "fedclust-ward",
    "flhc",
    "fedbn",
    "fedmmd",
    "fedfusion",
    "fedfusion-multi",
    "fedrep",
    # Mixtures, and models of the clients' own.
    "fedem",
    "fedrc",
    "ditto",
    "apfl",
    "pfedme",
    "perfedavg",
    "fedala",
    "scaffold",
    "moon",
    "fedrod",
    "lcfed",
    "stocfl",
    # Losses, counts of labels, and other descriptions.
    "cornflqs",
    "fedsoft",
    "ida-factors",
    "k_fed",
    "pacfl",
    "flux",
    "fedgsp",
    "rfedavg-one",
    "rfedavg-private",
    "rfedavg_optimal-private",
)
