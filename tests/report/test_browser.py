"""The page in a real browser: what is drawn, what answers, what it asks for, and what hostile names
make of it."""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.report import RunView, write_page
from coterie.report.tree import Tree
from coterie.report.write import write_pdf
from coterie.rules.signatures import SignatureMemory
from tests.conftest import PATIENCE
from tests.report.pages import client_table, grouped, plain, remembered_tree

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium"),
]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
N = 1000
ROUNDS = 100
GROUPS = 3
MARKUP = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=alert({i})>",
    "\"'><svg onload=alert({i})>",
    "</title><h1>{i}</h1>",
    "{{{{ 7 * 7 }}}}",
    "javascript:alert({i})",
    "https://example.org/{i}.png",
    "]]><!-- {i}",
    "\u202e{i}\x1b[2J",
    "</style><style>*{{display:none}}</style>",
)
HOSTILE = [MARKUP[i % len(MARKUP)].format(i=i) + str(i) for i in range(200)]


def tables(name: str, seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "algorithm": {"name": name},
        "data": {"source": "digits", "partition": {"kind": "iid"}},
    }


def run(name: str, seed: int, names: list[str], labels: list[str]) -> RunView:
    """A run of a thousand clients as `view_of` would read it; with groups, with newcomers and with
    a tree for some."""
    rng = np.random.default_rng(seed + len(name))
    grouped = name != "fedavg"
    member = np.full(N, -1)
    rows = []
    for t in range(ROUNDS):
        moves = [[c, c % GROUPS if grouped else 0] for c in range(20 * t, min(N, 20 * t + 20))]
        moves += [[int(rng.integers(20)), int(rng.integers(GROUPS))]] if grouped and t > 60 else []
        for client, group in moves:
            member[client] = group
        seconds = {
            "training": 0.1,
            "grouping": 0.01,
            "aggregation": 0.01,
            "evaluation": 0.03,
            "total": 0.2,
        }
        rows.append(
            {
                "round": t,
                "accuracy": 1 - (0.5 if grouped else 0.7) * 0.98**t + rng.normal() / 100,
                "moves": moves,
                "sizes": np.bincount(
                    member[member >= 0], minlength=GROUPS if grouped else 1
                ).tolist(),
                "newcomers": len(moves),
                "migrations": int(t > 60),
                "seconds": seconds,
                "transfers": {"down_bytes": 10**6, "up_bytes": 10**6},
                "agreement": {"ari": 0.9, "nmi": 0.8},
            }
        )
    where = np.eye(GROUPS)[member % GROUPS] + rng.normal(size=(N, GROUPS)) / 5
    return RunView(
        name,
        rows,
        member,
        names,
        histograms=rng.integers(0, 50, (N, 10)),
        planted=np.arange(N) % GROUPS,
        embedding=where if grouped else None,
        joined=np.arange(N) // 20,
        newcomers=np.arange(N) > 900,
        labels=labels,
        tree=Tree.of(tree(rng)) if name == "fedclust" else None,
        tables=tables(name, seed),
        versions={"coterie": "0.1.0"},
        client_table=client_table(
            names, member, np.round(rng.uniform(0.4 if grouped else 0.2, 1, N), 2)
        ),
    )


def tree(rng: np.random.Generator) -> SignatureMemory:
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import pdist, squareform

    near = pdist(rng.normal(size=(500, 4)) + 6 * np.eye(4)[np.arange(500) % GROUPS])
    links = linkage(near, "average")
    return remembered_tree(links, np.arange(500), 4.0, squareform(near))


def written(folder: Path, names: list[str], labels: list[str]) -> Path:
    runs = [
        run(name, seed, names, labels)
        for name in ("fedavg", "fedgroup", "fedclust")
        for seed in (0, 1)
    ]
    return write_page(folder / "page.html", runs, names[0], intro=names[1])


@functools.cache
def both() -> tuple[list[str], list[str]]:
    """Names, and as many that are hostile; the labels are the first ten of each."""
    return [f"client {i}" for i in range(N)], HOSTILE + [f"client {i}" for i in range(200, N)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    plain, hostile = both()
    benign = written(tmp_path_factory.mktemp("benign"), plain, [str(c) for c in range(10)])
    return benign, written(tmp_path_factory.mktemp("hostile"), hostile, hostile[:10])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        wait = 1000 * PATIENCE
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=wait)
        yield chromium
        chromium.close()


class Opened:
    """A page in the browser, with all that it says on its console and all that it asks for."""

    def __init__(self, browser: Any, path: Path, width: int = 1000, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.messages = []
        self.asked = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.messages.append("a dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.set_default_timeout(1000 * PATIENCE)
        counted = self.context.new_cdp_session(self.page)
        counted.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".chart[data-drawn]")
        found = counted.send("Performance.getMetrics")["metrics"]
        # Of the processor, in the page's own thread: the machine may be busy.
        (self.seconds,) = [one["value"] for one in found if one["name"] == "TaskDuration"]

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *error: object) -> None:
        self.context.close()

    def draw_all(self) -> list[str]:
        """Scroll through the page until every chart is drawn; returns their names."""
        ids: list[str] = self.page.eval_on_selector_all(".chart", "all => all.map(one => one.id)")
        for id in ids:
            self.page.locator(f"#{id}").scroll_into_view_if_needed()
            self.page.wait_for_selector(f"#{id}[data-drawn]")
        return ids

    def tooltip(self, id: str, mark: str) -> str:
        """The tooltip of the largest mark of a chart that nothing covers."""
        self.page.mouse.move(0, 0)
        shown = "#vg-tooltip-element.visible"
        self.page.wait_for_selector(shown, state="detached")
        self.page.mouse.move(*self.page.evaluate(UNCOVERED, f"#{id} {mark}"))
        return str(self.page.wait_for_selector(shown).inner_text())


# The middle of the largest mark, in the window. A mark may be covered by others, or have no area.
UNCOVERED = """(marks) => {
  const all = [...document.querySelectorAll(marks)];
  all[0].closest(".chart").scrollIntoView({behavior: "instant", block: "center"});
  const area = (one) => one.getBoundingClientRect().width * one.getBoundingClientRect().height;
  for (const mark of all.sort((a, b) => area(b) - area(a))) {
    const box = mark.getBoundingClientRect();
    const at = [box.x + box.width / 2, box.y + box.height / 2];
    if (document.elementFromPoint(...at) === mark) return at;
  }
}"""
OUTLINE = """() => {
  const walk = (node) => node.nodeName + "[" + node.getAttributeNames().sort().join() + "]("
    + [...node.children].map(walk).join("") + ")";
  return walk(document.documentElement);
}"""


@pytest.fixture(scope="module")
def opened(browser: Any, pages: tuple[Path, Path]) -> Iterator[Opened]:
    with Opened(browser, pages[0]) as page:
        page.draw_all()
        yield page


def test_every_chart_is_drawn(opened):
    ids = opened.page.eval_on_selector_all(".chart", "all => all.map(one => one.id)")
    kinds = {
        "accuracy",
        "bytes",
        "time",
        "agreement",
        "gain-1",
        "before-after-1",
        "members-1",
        "map-1",
        "mix-1",
    }
    assert kinds | {"tree-2", "near-2"} <= set(ids)
    assert not [
        id for id in ids if not opened.page.locator(f"#{id} svg path, #{id} canvas").count()
    ]


def test_charts_are_drawn_without_scrolling(browser, pages):
    with Opened(browser, pages[0]) as opened:
        assert opened.page.evaluate("scrollY") == 0
        opened.page.wait_for_selector(".chart:not([data-drawn])", state="detached")
        assert opened.page.evaluate("scrollY") == 0
        assert opened.messages == []


def test_a_browser_that_is_never_idle_draws_every_chart(browser, pages):
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    page.add_init_script(
        "requestIdleCallback = (work, options) => options?.timeout && setTimeout(work, 0)"
    )
    page.goto(pages[0].as_uri())
    page.wait_for_selector(".chart:not([data-drawn])", state="detached")
    page.close()


def test_a_small_page_is_drawn_when_it_is_loaded(browser, tmp_path):
    path = write_page(tmp_path / "page.html", [plain(), grouped()])
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    # The second that the page allows itself is never over, however busy the machine is.
    page.add_init_script("performance.now = () => 0")
    page.goto(path.as_uri(), wait_until="load")
    assert page.locator(".chart:not([data-drawn])").count() == 0
    page.close()


CLIPPED = """() => [...document.querySelectorAll(".chart")].flatMap((chart) => {
  const right = chart.getBoundingClientRect().right + 1;
  const inside = [...chart.querySelectorAll(".role-legend-entry text")];
  return inside.some((one) => one.getBoundingClientRect().right > right) ? [chart.id] : [];
})"""


# Legends are fitted 200 ms after the window got another size; the browser is idle when all charts
# are drawn again. Without a limit an idle page may wait for ever: Chromium calls itself idle only
# between two frames, and a page in which nothing moves may have no next one.
REDRAWN = """async () => {
  await new Promise((done) => setTimeout(done, 500));
  const idle = (done) => requestIdleCallback(done, {timeout: 1000});
  for (let i = 0; i < 5; i++) await new Promise(idle);
}"""


@pytest.fixture(scope="module")
def twenty_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of which one run has twenty groups."""
    names, labels = both()[0], [str(c) for c in range(10)]
    base = run("fedavg", 0, names, labels)
    ours = run("fedclust", 0, names, labels)
    twenty = np.arange(N) % 20
    table = replace(ours.client_table, member=twenty)
    many = replace(ours, groups=twenty, planted=np.arange(N) % 12, client_table=table)
    return write_page(tmp_path_factory.mktemp("twenty") / "page.html", [base, many])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("width", [390, 700, 1000])
def test_legends_of_twenty_groups_are_not_cut_off(browser, twenty_groups, width):
    with Opened(browser, twenty_groups, width) as opened:
        ids = opened.draw_all()
        assert {"gain-1", "before-after-1", "map-1", "near-1", "tree-1"} <= set(ids)
        assert opened.page.locator("#gain-1 .role-legend-entry text").count() == 20
        assert opened.page.evaluate(CLIPPED) == []
        opened.page.set_viewport_size({"width": 600, "height": 900})
        opened.page.evaluate(REDRAWN)
        assert opened.page.evaluate(CLIPPED) == []


def test_nothing_is_asked_for_or_complained_of(opened, pages):
    assert opened.messages == []
    assert opened.asked == [pages[0].as_uri()]


def test_tooltips_answer(opened):
    assert "seconds" in opened.tooltip("time", ".mark-rect.role-mark path")
    text = opened.tooltip("map-1", ".mark-symbol.role-mark path")
    assert "client" in text
    assert "group" in text
    assert "label" in opened.tooltip("mix-1", ".mark-rect.role-mark path")
    assert opened.messages == []


def test_keyboard_and_screen_readers_find_their_way(opened):
    page = opened.page
    page.evaluate("scrollTo(0, 0); document.activeElement.blur()")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for landmark in ("header", "nav[aria-label]", "main", "footer"):
        assert page.locator(landmark).count() == 1, landmark
    levels = page.eval_on_selector_all("h1, h2, h3", "all => all.map(one => +one.tagName[1])")
    assert levels.count(1) == 1 == levels[0]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.locator("section:not([aria-labelledby])").count() == 0
    labels = page.eval_on_selector_all(
        ".chart", "all => all.map(one => one.getAttribute('aria-label'))"
    )
    assert all(label and len(label) > 20 for label in labels)
    page.locator("figure summary").first.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.locator("figure details[open] table").first.is_visible()
    page.keyboard.press("Enter")
    assert page.locator("th:not([scope])").count() == 0
    ids = page.eval_on_selector_all("[id]", "all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_hostile_names_change_nothing_in_the_structure(browser, opened, pages):
    opened.tooltip("map-1", ".mark-symbol.role-mark path")
    with Opened(browser, pages[1]) as hostile:
        hostile.draw_all()
        assert hostile.tooltip("map-1", ".mark-symbol.role-mark path")
        assert hostile.page.evaluate(OUTLINE) == opened.page.evaluate(OUTLINE)
        assert hostile.messages == []
        assert hostile.asked == [pages[1].as_uri()]
        assert hostile.page.title() == HOSTILE[0]
        assert HOSTILE[1] in hostile.page.locator("p.intro").inner_text()


def test_a_page_of_a_thousand_clients_is_small_and_opens_at_once(browser, pages):
    assert pages[0].stat().st_size <= 3_000_000
    with Opened(browser, pages[0]) as opened:
        assert 0.01 < opened.seconds <= 3


def test_a_dark_phone_shows_it_without_scrolling_sideways(browser, pages):
    with Opened(browser, pages[1], width=390, scheme="dark") as phone:
        phone.draw_all()
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert phone.messages == []
        body = "getComputedStyle(document.body)"
        ink, paper = (
            phone.page.evaluate(f"{body}.{name}") for name in ("color", "backgroundColor")
        )
        assert brightness(ink) > brightness(paper) + 400


def brightness(colour: str) -> int:
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))


def test_a_printed_page_has_definitions_and_whole_tables(pages, tmp_path):
    printed = write_pdf(pages[0], tmp_path / "page.pdf").read_bytes()
    assert printed.startswith(b"%PDF-")
    assert printed.count(b"/Type /Page\n") > 1


def test_paper_hides_what_folds_and_cuts_no_table(opened):
    try:
        opened.page.emulate_media(media="print")
        opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        definitions = "details.about p"
        shown = opened.page.eval_on_selector_all(definitions, "all => all.map(p => p.offsetHeight)")
        cut = opened.page.eval_on_selector_all(
            "main > section > .scroll",
            "all => all.filter(s => s.scrollHeight > s.clientHeight + 1).length",
        )
        assert min(shown) > 0
        assert cut == 0
        assert not opened.page.locator("nav").is_visible()
        opened.page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert opened.page.locator("details.about[open]").count() == 0
    finally:
        opened.page.emulate_media(media="screen")


LINES = """cells => cells.map((cell) => {
  const text = document.createRange();
  text.selectNodeContents(cell);
  return text.getClientRects().length;
})"""


def test_clients_names_are_whole_and_their_figures_are_in_sight(browser, tmp_path):
    names = ["cleveland", "hungarian", "switzerland_west", "va"]
    names += [f"wanshouxigong{at}" for at in range(10)]
    samples = np.linspace(0.5, 0.9, len(names))
    of_methods = [
        replace(
            run,
            client_table=client_table(names, [0] * len(names), samples),
            tables=tables(run.name, 0),
        )
        for run in (
            RunView(name, plain().rounds, np.zeros(len(names), np.int64), names)
            for name in ("fedavg", "local", "ifca", "fedgroup", "cfl", "pacfl", "flux", "fedsoft")
        )
    ]
    path = tmp_path / "page.html"
    write_page(path, of_methods)
    for width in (1280, 500):
        with Opened(browser, path, width) as found:
            heading = found.page.get_by_role("heading", name="Each client", exact=True)
            table = found.page.locator("section", has=heading).locator("table")
            lines = table.locator("tbody tr th").evaluate_all(LINES)
            cut = table.evaluate("one => one.offsetHeight - one.parentElement.clientHeight")
            assert cut <= 1
            # And the last row, the mean of the clients.
            assert lines == [1] * (len(names) + 1)
            row = table.locator("tbody tr").first.locator("td")
            box = row.nth(2).bounding_box()
            assert box["x"] + box["width"] <= width
