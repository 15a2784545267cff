"""What `make test-quick` runs: of each kind of test some, in about a minute on two cores.

A file or a folder, and the tests of it: functions, or values of their parameters; ALL of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ALL = ()
# One method of each family: one model, groups found at the start, by the losses, by splits and once,
# mixtures of models, models of the clients' own, and layers that stay with them.
METHODS = ("fedavg", "fedgroup", "ifca", "cfl-splits", "fedclust", "fedem", "ditto", "fedbn")
QUICK: dict[str, tuple[str, ...]] = {
    "contract/test_algorithms.py": METHODS,
    "experiment/test_records.py": ALL,
    "golden": ALL,
    "math/test_distances.py": ALL,
    # Every command's help, and what the commands for runs print.
    "cli/test_help.py": ALL,
    "cli/test_data.py": ("test_list", "test_inspect"),
    "cli/test_runs.py": ("test_run_show_resume",),
    "cli/test_watch.py": ("test_once_says_how_a_run_stands",),
    "cli/test_errors.py": ("test_all_errors_of_a_configuration_at_once", "test_expected_errors"),
    "report/test_page.py": ALL,
    "export/test_folder.py": ("test_an_export_predicts_the_same_without_coterie",),
    "export/test_predictions.py": ("test_without_client_and_with_missing_columns",),
    "sweep/test_run_once.py": ALL,
    "sweep/test_runner.py": ("test_a_sweep_reports_and_skips",),
    "studies/test_advise.py": ("test_a_gain_that_may_be_chance_is_none",),
    "flower/test_federation_spec.py": ALL,
    "flower/operate/test_folder.py": ("test_the_folder_is_an_app_and_its_data_are_shares",),
    "cli/test_deploy.py": ("test_a_client_is_forgotten_but_for_its_secret",),
    # Engines: the pool and serial are in the contract.
    "engines/test_vmap.py": ("dense", "dropout"),
    "engines/test_ray.py": ("test_an_actor_trains_as_serial_does_and_keeps_what_it_was_sent",),
    "engines/test_flower.py": (
        "test_a_client_chooses_a_model_and_trains_it_in_one_exchange",
        "fedgroup",
    ),
    "runs/test_run.py": (
        "test_a_run_leaves_what_the_readme_says",
        "test_stopped_and_resumed_is_the_same_to_the_bit",
    ),
    "python/test_call.py": ALL,
    "data/test_planted.py": ALL,
    "privacy/test_accounting.py": ALL,
}


HERE = Path(__file__).parent


def is_quick(item: pytest.Item) -> bool:
    """Whether a collected test is one of them."""
    path = item.path.relative_to(HERE)
    for place in (path, *path.parents):
        words = QUICK.get(place.as_posix())
        if words is not None:
            return words == ALL or bool(_names(item) & set(words))
    return False


def _names(item: pytest.Item) -> set[str]:
    """The function of a test, and the value of its parameter."""
    function, _, values = item.name.removesuffix("]").partition("[")
    # A method may stand beside a number of workers or of groups.
    return {function, re.sub(r"^\d+-|-\d+$", "", values)}


def unknown(items: list[pytest.Item]) -> list[str]:
    """What is named here and is no test: files, and names in the files that were collected."""
    found = [name for name in QUICK if not (HERE / name).exists()]
    for name, words in QUICK.items():
        collected = [_names(item) for item in items if item.path == HERE / name]
        if collected:
            found += [f"{name}: {word}" for word in words if word not in set.union(*collected)]
    return found


def has_quick(path: Path) -> bool:
    """Whether a file or a folder has any of them, so that the others are not even imported."""
    if not path.is_relative_to(HERE):
        return False
    place = path.relative_to(HERE)
    parents = {one.as_posix() for one in (place, *place.parents)}
    return bool(parents & QUICK.keys()) or any(Path(one).is_relative_to(place) for one in QUICK)
