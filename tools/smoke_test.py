"""What must work with an installed Coterie alone: `python -I tools/smoke_test.py ENVIRONMENT`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from pkgutil import walk_packages

import coterie as ct

# Packages of the extras. A module that needs one cannot be imported without it.
EXTRAS = {"cryptography", "datasets", "flwr", "mlflow", "onnx", "ortools", "ray", "tensorboard"}


def import_all_modules() -> tuple[int, list[str]]:
    """Import every module; return how many there are, and which need an extra."""
    names = [module.name for module in walk_packages(ct.__path__, "coterie.")]
    # A module called __main__ is a program: to import it is to run it.
    modules = [name for name in names if not name.endswith(".__main__")]
    needing = []
    for name in modules:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in EXTRAS:
                raise
            needing.append(name)
    return len(modules), needing


def main() -> None:
    environment = Path(sys.argv[1]).resolve()
    home = Path(ct.__file__).resolve()
    assert environment in home.parents, f"coterie was imported from {home}"
    assert files("coterie").joinpath("py.typed").is_file()

    count, needing = import_all_modules()
    print(f"{count} modules, {len(needing)} of them need an extra: {', '.join(needing)}")

    partition = {"kind": "planted", "clients": 12, "groups": 3, "how": "rotate"}
    data = ct.load("digits", partition=partition)
    result = ct.run(ct.fedgroup(groups=3, alpha=3), data=data, model="mclr", rounds=2)
    assert len(result.accuracy) == 2
    assert result.accuracy[-1] > 0.3, result.accuracy
    print(f"FedGroup on digits, 2 rounds: accuracy {result.accuracy[-1]:.1%}")


if __name__ == "__main__":
    main()
