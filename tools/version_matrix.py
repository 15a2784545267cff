"""Run tests with every Python version and with the lowest and the newest dependencies.

    python tools/version_matrix.py                      # what can be run on this machine
    python tools/version_matrix.py --list
    python tools/version_matrix.py --only 3.13-lowest --tests tests/math tests/core

A cell is a Python version and a set of dependencies: ``pinned`` (constraints.txt), ``newest`` (what
pip finds without it), ``lowest`` (the lowest version that pyproject.toml allows of every dependency
for which that Python has a build), or ``flower`` (``newest`` and the extra of that name, for the
tests of the strategy; the lowest version of Flower is the pinned one). Each cell has an environment
of its own in a temporary folder. A Python that is not on the machine, or for which a dependency has
no build, is a line that says so, and not a failure; a cell whose tests fail ends the command with 1.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
SETS = ("pinned", "newest", "lowest", "flower")
FLOWER_TESTS = ("tests/flower/strategy",)
TESTS = ("tests/core", "tests/math", "tests/local", "tests/contract", "tests/python")
# What the tests need beside the package.
TOOLS = ("pytest>=8.3", "hypothesis>=6.110", "psutil>=6.0")
_LOWEST = re.compile(r"^([A-Za-z0-9._-]+)\s*>=\s*([0-9][0-9A-Za-z.]*)")


@dataclass(frozen=True, slots=True)
class Cell:
    """A Python version and a set of dependencies.

    Args:
        python: as ``3.13`` or ``3.14t``.
        dependencies: ``pinned``, ``newest``, ``lowest`` or ``flower``.
    """

    python: str
    dependencies: str

    @property
    def name(self) -> str:
        """As ``--only`` takes it."""
        return f"{self.python}-{self.dependencies}"

    @property
    def package(self) -> str:
        """What is installed: the folder of the repository, with an extra or without."""
        extra = "[flower]" if self.dependencies == "flower" else ""
        return f"{ROOT}{extra}"

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that are run unless others are given."""
        if self.dependencies == "flower":
            return FLOWER_TESTS
        return TESTS


def interpreter(version: str) -> Path | None:
    """The newest interpreter of a version on this machine; ``None``: there is none.

    pyenv's are looked for first, since a shim of pyenv is on the path of versions that are not
    active, too.
    """
    pattern = f"{version}.*"
    if version.endswith("t"):
        pattern = f"{version[:-1]}.*t"
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted((root / "versions").glob(pattern), key=_numbers)
    candidates = [path / "bin" / "python" for path in reversed(found)]
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        candidates.append(Path(on_path))
    for path in candidates:
        call = [str(path), "-c", "import venv"]
        if path.exists() and subprocess.run(call, capture_output=True).returncode == 0:
            return path
    return None


def _numbers(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.name))


def lowest(requirements: Sequence[str]) -> list[str]:
    """The lowest allowed version of each requirement, as pip's constraints.

    Example:
        >>> lowest(["torch>=2.6", "pydantic>=2.9,<3"])
        ['torch==2.6.*', 'pydantic==2.9.*']
    """
    found = []
    for requirement in requirements:
        match = _LOWEST.match(requirement)
        if match is not None:
            found.append(f"{match[1]}=={match[2]}.*")
    return found


def constraints(cell: Cell, scratch: Path) -> list[str]:
    """What pip is told beside the requirements."""
    if cell.dependencies == "pinned":
        return ["-c", str(ROOT / "constraints.txt")]
    if cell.dependencies in ("newest", "flower"):
        return []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    file = scratch / "lowest.txt"
    file.write_text("\n".join(lowest(project["dependencies"])) + "\n", encoding="utf-8")
    return ["-c", str(file)]


def run(cell: Cell, tests: Sequence[str], scratch: Path) -> str:
    """What came of a cell: ``passed``, ``failed``, or why it could not be run."""
    python = interpreter(cell.python)
    if python is None:
        return "not run: no such Python on this machine"
    environment = scratch / cell.name
    subprocess.run([str(python), "-m", "venv", str(environment)], check=True)
    inside = environment / "bin" / "python"
    install = [str(inside), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    options = constraints(cell, scratch)
    # Wheels alone: what would have to be built from source has no build for this Python.
    wheels = ["--only-binary", ":all:", "--no-binary", "coterie"]
    made = subprocess.run(
        [*install, *wheels, *options, "-e", cell.package, *TOOLS], capture_output=True, text=True
    )
    if made.returncode:
        errors = [line for line in made.stderr.splitlines() if line.startswith("ERROR:")]
        return f"not run: {errors[0] if errors else 'pip failed'}"
    pytest = [str(inside), "-m", "pytest", "-q", "-x", "-m", "not slow and not flower"]
    pytest += tests or cell.tests
    done = subprocess.run(pytest, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    shutil.rmtree(environment)
    return "failed" if done.returncode else "passed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cells = {cell.name: cell for cell in (Cell(p, d) for p in PYTHONS for d in SETS)}
    parser.add_argument("--only", nargs="+", choices=list(cells), default=list(cells))
    parser.add_argument("--tests", nargs="+", default=[], help="in place of those of each cell")
    parser.add_argument("--list", action="store_true", help="the cells and their interpreters")
    args = parser.parse_args()
    if args.list:
        for name in args.only:
            print(f"{name:14} {interpreter(cells[name].python) or '-'}")
        return
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="coterie-matrix-") as place:
        for name in args.only:
            outcomes[name] = run(cells[name], args.tests, Path(place))
            print(f"{name}: {outcomes[name]}", flush=True)
    raise SystemExit("failed" in outcomes.values())


if __name__ == "__main__":
    main()
