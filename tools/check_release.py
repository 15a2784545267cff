"""Check a release: one version everywhere, complete archives, a wheel that works without the clone.

    python tools/check_release.py versions           # before the build
    python tools/check_release.py archives dist      # after it

`make dist` calls both. With `--final` the changelog and CITATION.cff must carry the day of the
release.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SMOKE_TEST = ROOT / "tools" / "smoke_test.py"
PACKAGE = "src/coterie/"

# What the build adds to the files of the clone.
BUILT = {"PKG-INFO"}
# The order of files in RECORD and the build tool's version in WHEEL may differ between two builds.
BUILD_NOTES = {"RECORD", "WHEEL"}
# Variables that would let the clone, or another environment, into the clean one.
LEAKS = {"PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "COTERIE_DATA"}


def package_version(root: Path = ROOT) -> str:
    """Return `coterie.__version__`, read without importing the package."""
    text = (root / PACKAGE / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    if found is None:
        raise SystemExit(f'{PACKAGE}__init__.py: no line __version__ = "..."')
    return found.group(1)


def newest_change(root: Path = ROOT) -> tuple[str, str]:
    """Return version and day of the changelog's newest heading, `## [0.2.0] - 2026-12-31`.

    The day is the word `unreleased` until the release is made.
    """
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## (.*)$", text, re.MULTILINE)
    heading = found.group(1) if found else ""
    parts = re.fullmatch(r"\[([^\]]+)\] - (unreleased|\d{4}-\d{2}-\d{2})", heading)
    if parts is None:
        raise SystemExit(
            f"CHANGELOG.md: the newest heading is {heading!r}; "
            "expected '[version] - unreleased' or '[version] - year-month-day'"
        )
    return parts.group(1), parts.group(2)


def citation(root: Path = ROOT) -> dict[str, str]:
    """Return the top-level lines `key: value` of CITATION.cff, without quotes."""
    text = (root / "CITATION.cff").read_text(encoding="utf-8")
    pairs = re.findall(r"^([a-z-]+): *(.+)$", text, re.MULTILINE)
    return {key: value.strip().strip('"') for key, value in pairs}


def disagreements(root: Path = ROOT, final: bool = False) -> list[str]:
    """Return one line for every place that has another version than `coterie.__version__`.

    Args:
        root: the clone.
        final: whether the changelog and CITATION.cff must carry the day of the release.
    """
    ours = package_version(root)
    lines = []

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if "version" in project or "version" not in project.get("dynamic", ()):
        lines.append("pyproject.toml: the version must be dynamic, read from coterie.__version__")

    changed, day = newest_change(root)
    if changed != ours:
        lines.append(f"CHANGELOG.md: the newest version is {changed}; expected {ours}")

    cited = citation(root)
    if cited.get("version") != ours:
        lines.append(f"CITATION.cff: version is {cited.get('version')}; expected {ours}")

    if final and day == "unreleased":
        lines.append(f"CHANGELOG.md: {ours} is unreleased; expected the day of the release")
    cited_day = cited.get("date-released")
    if day not in ("unreleased", cited_day):
        lines.append(f"CITATION.cff: date-released is {cited_day}; expected {day}")
    return lines


def tracked_files() -> set[str]:
    """Return the files of the clone that git knows, relative to its root."""
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = done.stdout.rstrip("\0").split("\0")
    return {name for name in names if (ROOT / name).exists()}


def wheel_digests(wheel: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in a wheel, without the notes of the build tool."""
    digests = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if Path(name).name not in BUILD_NOTES:
                digests[name] = hashlib.sha256(archive.read(name)).hexdigest()
    return digests


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack a source archive into a folder; return the folder of the project in it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (project,) = folder.iterdir()
    return project


def require_same(what: str, got: set[str], expected: set[str]) -> None:
    """Stop with the names that are missing, or that should not be there."""
    missing = sorted(expected - got)
    surplus = sorted(got - expected)
    if missing or surplus:
        raise SystemExit(f"{what}: missing {missing or 'nothing'}, surplus {surplus or 'nothing'}")


def check_contents(wheel: Path, project: Path) -> None:
    """The wheel holds the whole package, the source archive holds the whole clone."""
    tracked = tracked_files()
    package = {name.removeprefix("src/") for name in tracked if name.startswith(PACKAGE)}
    in_wheel = {name for name in wheel_digests(wheel) if ".dist-info/" not in name}
    require_same(wheel.name, in_wheel, package)

    files = {path for path in project.rglob("*") if path.is_file()}
    in_sdist = {path.relative_to(project).as_posix() for path in files}
    require_same(project.name, in_sdist, tracked | BUILT)


def run(command: list[str | Path], cwd: Path, env: dict[str, str]) -> str:
    """Run a command, print its time, return what it printed; stop where it fails."""
    begun = time.perf_counter()
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=1800)
    shown = " ".join(Path(word).name for word in words)
    if done.returncode != 0:
        raise SystemExit(f"{shown}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    print(f"  {time.perf_counter() - begun:6.1f} s  {shown}", flush=True)
    return done.stdout


def clean_environment() -> dict[str, str]:
    """Return the variables of this process, without those that lead to the clone.

    Those of pip stay: they say where this machine finds packages.
    """
    env = {name: value for name, value in os.environ.items() if name not in LEAKS}
    env["OMP_NUM_THREADS"] = "1"
    return env


def constraints(folder: Path) -> Path:
    """Write the exact versions to install; return the file.

    PyTorch comes in builds for processors and for several GPUs. Where the environment that runs
    this check has one, the clean environment gets the same, not a download of gigabytes.
    """
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    try:
        lines = [line for line in lines if not line.startswith("torch==")]
        lines.append(f"torch=={version('torch')}")
    except PackageNotFoundError:
        lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    path = folder / "constraints.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def check_source_build(wheel: Path, sdist: Path, scratch: Path, env: dict[str, str]) -> None:
    """A wheel that pip builds from the source archive has the same content."""
    folder = scratch / "from-source"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "-qq"]
    run([*pip, "wheel", "--no-deps", "-w", folder, sdist], scratch, env)
    (rebuilt,) = folder.glob("*.whl")
    if wheel_digests(rebuilt) != wheel_digests(wheel):
        raise SystemExit(f"{rebuilt.name}: built from {sdist.name}, differs from {wheel}")


def check_wheel(wheel: Path, project: Path, scratch: Path, env: dict[str, str]) -> None:
    """Install the wheel in a clean environment, and work with it in an empty folder.

    The demo and the export need the templates, `reproduce` needs the papers' tables: they fail if
    the wheel lacks them or does not find them.
    """
    venv = scratch / "venv"
    empty = scratch / "empty"
    empty.mkdir()
    run([sys.executable, "-m", "venv", venv], scratch, env)
    python = venv / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "-qq", "--disable-pip-version-check"]
    # Python compiles what is used when it is first used; pip would compile 10,000 files.
    run([*pip, "install", "--no-compile", "-c", constraints(scratch), wheel], scratch, env)
    run([*pip, "check"], scratch, env)

    coterie = venv / "bin" / "coterie"
    shown = run([coterie, "--version"], empty, env).strip()
    if shown != f"coterie {package_version()}":
        raise SystemExit(f"coterie --version: got {shown!r}; expected {package_version()}")
    run([coterie, "list", "algorithms"], empty, env)
    run([coterie, "reproduce", "--list"], empty, env)
    run([coterie, "demo"], empty, env)
    example = project / "examples" / "digits.toml"
    run([coterie, "run", example, "--set", "train.rounds=2", "--out", "run"], empty, env)
    run([coterie, "report", "run"], empty, env)
    run([coterie, "export", "run"], empty, env)
    print(run([python, "-I", SMOKE_TEST, venv], empty, env).strip())
    for page in ("runs/demo/demo.html", "run/report.html", "run/export/load.py"):
        if not (empty / page).is_file():
            raise SystemExit(f"the installed wheel did not write {page}")


def check_archives(folder: Path) -> None:
    """Check the one wheel and the one source archive in a folder."""
    (wheel,) = folder.resolve().glob("*.whl")
    (sdist,) = folder.resolve().glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="coterie-release-") as name:
        scratch = Path(name)
        env = clean_environment()
        project = unpack(sdist, scratch / "sdist")
        check_contents(wheel, project)
        check_source_build(wheel, sdist, scratch, env)
        check_wheel(wheel, project, scratch, env)
    print(f"{wheel.name} and {sdist.name} are complete, and the wheel works without the clone")


def main() -> None:
    """Run one of the two steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=["versions", "archives"])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--final", action="store_true", help="the day of the release must be set")
    args = parser.parse_args()
    if args.step == "archives":
        check_archives(args.folder)
        return
    wrong = disagreements(final=args.final)
    if wrong:
        raise SystemExit("\n".join(wrong))
    changed, day = newest_change()
    print(f"version {changed}, {day}")


if __name__ == "__main__":
    main()
