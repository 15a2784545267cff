"""The page: complete in itself, escaped, and right about what it says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import vl_convert

from coterie.errors import ConfigError
from coterie.headline import Headline
from coterie.report import write, write_figures, write_page
from coterie.report.page import page_of
from coterie.report.render import render_page
from coterie.report.tree import Tree
from coterie.report.write import write_report
from tests.refusals import refuses
from tests.report.pages import (
    COURSE,
    HOSTILE,
    Scripts,
    both_methods,
    client_table,
    data_of,
    grouped,
    linkage_memory,
    numbered,
    parse,
    plain,
)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Scripts:
    names = [HOSTILE, *"abcde"]
    late = grouped(
        HOSTILE,
        names=names,
        newcomers=np.array([1, 0, 0, 0, 0, 1], bool),
        labels=[HOSTILE, "y", "z"],
    )
    path = write_page(
        tmp_path_factory.mktemp("report") / "deep" / "page.html", [plain(), late], HOSTILE
    )
    return parse(path)


def test_page_loads_nothing(page):
    assert [address for address in page.addresses if not address.startswith("#")] == ["data:,"]


def test_page_allows_its_own_scripts_only(page):
    runnable = [text for attrs, text in page.scripts if attrs.get("type") != "application/json"]
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in runnable
    ]
    allowed = re.search(r"script-src ([^;]*)", page.policy)
    style = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert f"style-src 'sha256-{style}';" in page.policy
    assert "unsafe" not in page.policy
    assert "default-src 'none'" in page.policy
    assert allowed is not None
    assert allowed[1].split() == [f"'sha256-{h}'" for h in hashes]


def test_page_escapes_every_name(page):
    assert len(page.scripts) == 3
    assert page.text.count(HOSTILE) >= 3  # read back as text: title, heading, table


def test_page_has_the_charts(page):
    specs = json.loads(page.scripts[0][1])
    assert list(specs) == ["accuracy", "map-1", "mix-1"]
    assert "1 of 2" in page.text


def test_page_of_one_run_without_groups(tmp_path):
    path = write_page(tmp_path / "page.html", [plain()])
    assert list(json.loads(parse(path).scripts[0][1])) == ["accuracy"]


def test_page_of_nothing(tmp_path):
    assert "No round has been run yet" in parse(write_page(tmp_path / "page.html", [])).text


def test_charts_and_tables_count_rounds_from_one():
    from coterie.report.sections import sections

    every = [numbered(0.2, 0.5, 0.6), plain()]
    shown = sections(every)
    charts = {chart["id"]: chart for section in shown for chart in section.get("charts", ())}
    by_round = {"accuracy", "bytes", "agreement", "members-0", "shift-0", "theory-0"}
    assert by_round <= set(charts)
    for name in by_round:
        columns, cells = charts[name]["table"]
        rounds = [int(row[columns.index("round")]) for row in cells]
        assert (min(rounds), max(rounds)) == (1, 3), name
        for field in ("round", "from", "to"):
            drawn = [number for (number,) in data_of(charts[name]["spec"], field)]
            assert not drawn or 1 <= min(drawn) <= max(drawn) <= 3, name
    late = next(section for section in shown if section["title"] == "Where newcomers were placed")
    assert [row[1] for row in late["rows"]] == ["1", "2"]


def test_the_page_names_one_difference_and_which_accuracy_it_is_of(tmp_path):
    from coterie.report.sections import sections

    every = [plain(final=0.7056), grouped(final=0.9332)]  # 70.6 and 93.3, 22.76 apart
    table = next(section for section in sections(every) if section["title"] == "The runs")
    assert table["columns"][:3] == ["run", "final", "final against FedAvg"]
    assert table["rows"][1][2] == ("+22.8", "figure")
    assert "last evaluated round" in table["definitions"]
    page = parse(write_page(tmp_path / "page.html", every))
    assert "Accuracies are those after the last evaluated round." in page.text


def test_the_page_says_which_clients_count_and_in_which_group():
    from coterie.report.sections import sections

    accuracy, table = sections([numbered(0.2, 0.5)])[:2]
    assert (
        "A round counts only the clients that have a group in that round."
        in accuracy["definitions"]
    )
    assert "A client counts for the group that it has at the end" in table["definitions"]


def test_page_of_a_full_run_has_every_chart(tmp_path):
    theory = {"divergence": 0.3, "divergence_one": 0.7, "bound": None, "bound_one": None}
    course = [{**row, "agreement": {"ari": 1.0, "nmi": 1.0}, "theory": theory} for row in COURSE]
    run = grouped(rounds=course, tree=Tree.of(linkage_memory()))
    page = parse(write_page(tmp_path / "page.html", [run]))
    expected = [
        "accuracy",
        "agreement",
        "map-0",
        "mix-0",
        "shift-0",
        "theory-0",
        "tree-0",
        "near-0",
    ]
    assert set(json.loads(page.scripts[0][1])) == set(expected)
    paths = write_figures(tmp_path / "png", [run])
    assert [path.name for path in paths] == [f"{name}.png" for name in expected]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_the_guide_lists_every_section_and_every_chart():
    from coterie.report.sections import sections

    guide = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    clients = client_table([f"c{i}" for i in range(6)], [0] * 6, np.linspace(0, 1, 6))
    known = {"client_table": clients, "tables": {"seed": 0}}
    full = replace(numbered(0.2, 0.5, 0.6), tree=Tree.of(linkage_memory()), **known)
    shown = sections([full, replace(plain(), **known)])
    for section in shown:
        assert f"| {section['title'].split(':')[0]} |" in guide
        for chart in section.get("charts", ()):
            assert f"`{re.sub('[0-9]+', '<i>', chart['id'])}`" in guide
    assert len(shown) >= 12


def test_a_page_that_cannot_be_written_is_refused_in_a_line(tmp_path):

    with refuses(ConfigError, "cannot-be-written", "--out"):
        write_page(tmp_path, [plain()])


def test_the_page_of_a_sweep_says_who_won_and_who_lost(tmp_path):
    page = parse(write_page(tmp_path / "page.html", both_methods()))
    assert {"gain-1", "before-after-1", "members-1"} <= set(json.loads(page.scripts[0][1]))
    said = "4 of 6 clients gained and 1 lost; 1 did not change, by their means over 2 seeds"
    assert said in page.text
    assert "+10.0 ± 0.0" in page.text


def test_values_of_another_unit_have_one_number_of_decimals(tmp_path):
    mae = Headline("mae", better="lower", unit="mm", label="MAE")
    runs = [
        replace(plain(), rounds=[{"round": 0, "mae": 101.234}], headline=mae),
        grouped(rounds=[{"round": 0, "mae": 7.1416}], headline=mae),
    ]
    page = page_of(runs)
    assert ">101.2 mm<" in page
    assert ">7.1 mm<" in page


def test_pdf_without_a_browser_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(write, "BROWSERS", ("chromium",))
    with pytest.raises(ConfigError) as refused:
        write_report([tmp_path / "no run"], pdf=True)
    assert refused.value.problems[0].code == "not-installed"


def test_a_hint_belongs_to_the_table_that_gives_it():
    from coterie.report.render import render_page

    rounds = {"title": "a", "columns": ["run", "best"], "rows": [], "hints": {"best": "of rounds"}}
    methods = {"title": "b", "columns": ["client", "best"], "rows": []}
    page = render_page("title", "headline", "", [], [rounds, methods])
    assert page.count('title="of rounds"') == 1


def test_the_script_of_a_page_is_made_once_and_again_where_its_copy_is_damaged(
    tmp_path, monkeypatch
):
    made = []

    def bundle(code: str, vl_version: str) -> str:
        made.append(vl_version)
        return f"// {vl_version}\n{code}"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    scripts = []
    for damage in (False, False, True):
        for file in (tmp_path / "cache").rglob("*.json"):
            if damage:
                file.write_bytes(file.read_bytes().replace(b"vegaEmbed", b"somewhere", 1))
        scripts.append(render_page("t", "h", "i", [], []))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "page.html"))
    (tmp_path / "page.html").write_text("no folder")
    scripts.append(render_page("t", "h", "i", [], []))
    assert len(set(scripts)) == 1
    assert len(made) == 3
