"""Examples of the documentation run, and configurations on its pages are accepted."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import shutil
import sys
import tomllib
import types

import pytest
import torch

import coterie as ct
from coterie.cli import compare
from coterie.cli.main import invoke
from coterie.experiment import check
from coterie.models import build_model
from tests.docs.pages import NAMED, ROOT, blocks


def test_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    one, many = map(
        float,
        re.search(r"one model: ([\d.]+)%, a model per group: ([\d.]+)%", printed).groups(),
    )
    assert many > one


def test_configuration_is_accepted():
    (text,) = blocks("toml")
    assert check(tomllib.loads(text)).algorithm.name == "fedgroup"
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    (text,) = blocks("toml", page)
    assert check(tomllib.loads(text)).shift.kind == "swap_all"


def test_fedavg_by_hand_has_the_bits_of_fedavg(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    by_hand = importlib.import_module("fedavg_by_hand").fedavg
    partition = {"kind": "dirichlet", "clients": 30, "beta": 0.3}
    data = ct.load("digits", partition=partition, seed=1)
    local = ct.Solver(epochs=2, batch_size=8, lr=0.05)
    net = build_model("mlp", data.shape, data.classes, ct.Key(5).of("model"), hidden=16)
    found = list(by_hand(data, net, local, rounds=6, per_round=7, seed=5))
    models = []
    result = ct.run(
        ct.fedavg(),
        data=data,
        model={"name": "mlp", "hidden": 16},
        local=local,
        rounds=6,
        clients_per_round=7,
        train={"sampler": "uniform"},
        seed=5,
        engine="serial",
        on_round=lambda after: models.append(after.groups.models[0]),
    )
    assert len(models) == 6
    for (model, accuracy), expected, row in zip(found, models, result.rows, strict=True):
        assert torch.equal(model, expected)
        assert accuracy == row["accuracy"]
    assert not torch.equal(models[0], models[-1])


# Pages whose snippets run, in order, in one folder.
RUN = ("tutorial", "tutorial-hospitals", "tutorial-stations", "write-a-method", "choose", "compare")
BLOCK = re.compile(r"^```(python|toml|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("sweeps", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", RUN)
def test_snippets_run(page, sweeps, tmp_path, monkeypatch, capsys):
    """All of them in the slow tests; in the others those that sweep are checked only so far as to
    be planned."""
    if not sweeps:
        monkeypatch.setattr(compare, "run_sweep", lambda plan, *_: assert_planned(plan))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "examples").mkdir()
    for file in (ROOT / "examples" / "digits.toml", ROOT / "examples" / "settle.py"):
        shutil.copy(file, tmp_path / "examples")
        shutil.copy(file, tmp_path)
    for table in (ROOT / "examples" / "tables").glob("*.csv"):
        shutil.copy(table, tmp_path)
    space: dict[str, object] = {}
    before = set(sys.modules)
    try:
        for language, text in BLOCK.findall(
            (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        ):
            if language == "toml":
                (tmp_path / re.match(r"# (\S+\.toml)\n", text)[1]).write_text(
                    text, encoding="utf-8"
                )
            elif language == "python":
                exec(compile(text, f"{page}.md", "exec"), space)
            else:
                joined = text.replace("\\\n", "")  # a command over several lines
                for line in re.findall(r"^\$ coterie (.*)$", joined, re.MULTILINE):
                    assert invoke(shlex.split(line)) == 0, (line, capsys.readouterr().err)
    finally:
        for name in ("settle", "load"):  # modules of the folder, which is gone after the test
            if name not in before:
                sys.modules.pop(name, None)


# Pages whose Python snippets are whole programs, one after another.
PYTHON_ONLY = (
    "attacks",
    "index",
    "local-training",
    "measures",
    "models",
    "own-data",
    "private-updates",
    "tasks",
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("page", PYTHON_ONLY)
def test_python_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snippets = blocks("python", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert snippets
    space: dict[str, object] = {"__name__": "__main__"}
    for text in snippets:
        exec(compile(text, f"{page}.md", "exec"), space)


def language_program() -> str:
    """The program that its page saves as language.py."""
    return blocks("python", (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8"))[-1]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::UserWarning"
)  # of transformers and peft
def test_the_language_model_of_a_page_runs_and_resumes(tmp_path, monkeypatch):
    """One round of it, in this process, whose classes no other one could import."""
    monkeypatch.chdir(tmp_path)
    text = language_program()
    assert "rounds=10" in text
    space: dict[str, object] = {"__name__": "__main__"}
    exec(compile(text.replace("rounds=10", "rounds=1, engine='serial'"), "adapters", "exec"), space)
    result = space["result"]
    assert set(result.state.member) == {0, 1}
    assert 1 < result.scores[-1] < 6
    more = ct.resume("runs/language", model=space["network"], rounds=2)
    assert more.scores[0] == result.scores[0]
    more.model_for(0).model.save_pretrained("adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def assert_planned(plan) -> None:
    assert len(plan.runs) > 1


BASE = {
    "data": {"source": "digits", "partition": {"kind": "iid", "clients": 40}},
    "model": {"name": "mclr"},
    "train": {"rounds": 2, "clients_per_round": 4},
    "algorithm": {"name": "fedavg"},
}  # what a configuration needs besides the tables that a page shows


@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::UserWarning"
)  # of transformers and peft
@pytest.mark.parametrize("page", NAMED, ids=lambda path: path.name)
def test_configurations_on_pages_are_accepted(page, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # where `settle:settle` is
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "language.py").write_text(language_program(), encoding="utf-8")
    monkeypatch.setitem(sys.modules, "language", None)
    monkeypatch.delitem(sys.modules, "language")
    for text in blocks("toml", page.read_text(encoding="utf-8")):
        tables = tomllib.loads(text)
        if "federations" in tables:
            continue  # a suite, which tests/studies/test_scoreboard.py checks
        data = {**BASE["data"], **tables.get("data", {})}
        check(
            {**BASE, **tables, "data": data, "train": {**BASE["train"], **tables.get("train", {})}}
        )


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_and_are_kept_without_outputs(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    space: dict[str, object] = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec(compile("".join(cell["source"]), notebook.name, "exec"), space)


def test_the_rule_of_own_models_runs(monkeypatch):
    page = (ROOT / "docs" / "own-models.md").read_text(encoding="utf-8")
    # The first block shows calls with arguments left out.
    _, rule, method = blocks("python", page)
    # The pool looks up the rule's class in its module.
    module = types.ModuleType("own_models_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(f"import coterie as ct\n{rule}", "own-models.md", "exec"), vars(module))
    by_table = module.result
    exec(compile(method, "own-models.md", "exec"), vars(module))
    assert module.result is not by_table
    assert module.result.accuracy == by_table.accuracy
