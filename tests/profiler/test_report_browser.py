"""Reports in a real browser: they draw, search, fold, sort and turn dark; by keyboard too; and ask for nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.profiler import report
from gpujit.profiler.data import GraphText, Profile
from tests.profiler import nets
from tests.profiler.browsing import LEAST_CONTRAST, contrasts, launched, opened
from tests.profiler.samples import GROUP_TEXT, HOSTILE, chain, profile, step
from tests.profiler.test_report import hostile_profile

pytestmark = pytest.mark.browser

# Seconds in which a page of 5,000 operators takes input, and answers it; a tenth of it is usual.
LARGE_LOAD, LARGE_ANSWER = 5.0, 2.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


def written(tmp_path: Path, found: Profile) -> Path:
    path = tmp_path / "report.html"
    report.write(found, path)
    return path


def shown(page: Any, selector: str) -> int:
    return int(page.locator(selector).count())


def active(page: Any, expression: str) -> Any:
    return page.evaluate(f"(() => {{ const e = document.activeElement; return {expression}; }})()")


def search(page: Any, text: str, panel: str = "#graph-stage0") -> str:
    """Type into the search box; what it says it found."""
    page.fill(f"{panel} input", text)
    page.wait_for_timeout(200)
    return str(page.inner_text(f"{panel} .found"))


def test_bars_charts_and_graph_are_drawn(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile())) as page:
        assert shown(page, "#bars svg.bars rect") == 2
        widths = page.eval_on_selector_all(
            "#bars svg.bars rect", "all => all.map(e => e.getBoundingClientRect().width)"
        )
        assert widths[1] == pytest.approx(4 * widths[0], rel=0.05)
        assert shown(page, "#roofline-chart circle.mark") == 2
        assert shown(page, "#timeline-chart .mark") == 2
        assert shown(page, "#memory-chart .mark") == 2
        assert shown(page, "#graph-stage0 .item.node") == 5
        assert shown(page, "#graph-stage0 .edge") == 4
        assert "float32[4, 8]" in page.text_content("#graph-stage0 .edge-label")


def test_tabs_show_the_graph_before_and_after(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile())) as page:
        before, after = page.locator("[role=tab]").all()
        assert "Before fusion" in before.inner_text() and "After fusion" in after.inner_text()
        after.click()
        assert not page.is_visible("#graph-stage0") and page.is_visible("#graph-stage1")
        assert shown(page, "#graph-stage1 .item.scope.c0") == 1
        # Where the operators go is coloured before, too.
        assert shown(page, "#graph-stage0 .item.node.c0") == 2
        after.press("ArrowLeft")
        assert page.is_visible("#graph-stage0") and active(page, "e.id") == "tab-stage0"


def test_folding_and_unfolding(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile(graphs=(GraphText("fused", GROUP_TEXT),)))) as page:
        assert shown(page, ".item.node") == 5
        page.click(".item.scope > text")
        assert shown(page, ".item.scope.closed") == 1 and shown(page, ".item.node") == 3
        assert page.get_attribute(".item.scope", "aria-expanded") == "false"
        # What it read and wrote now goes to the box.
        assert shown(page, ".edge") == 3
        page.click(".item.scope > text")
        assert shown(page, ".item.node") == 5
        page.click("[data-do=fold]")
        assert shown(page, ".item.node") == 3
        page.click("[data-do=unfold]")
        assert shown(page, ".item.node") == 5
        assert page.inner_text(".about").count("relu+tanh") == 1
        page.click(".about a")
        assert page.get_attribute("#group-0", "open") is not None


def test_search_marks_and_unfolds(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile(graphs=(GraphText("fused", GROUP_TEXT),)))) as page:
        page.click("[data-do=fold]")
        assert search(page, "TANH") == "1 of 2 found"
        assert shown(page, ".item.node.hit") == 1 and shown(page, ".item.scope.hit") == 1
        page.click("[data-do=next]")
        assert page.inner_text(".found") == "2 of 2 found"
        assert page.text_content(".item.now text") == "tanh"
        page.press("input[type=search]", "Enter")
        assert page.inner_text(".found") == "1 of 2 found"
        assert search(page, "py:30") == "1 of 1 found"
        assert page.text_content(".item.now text") == "softmax"
        assert search(page, "nosuchthing") == "nothing found"
        assert search(page, "") == "" and shown(page, ".hit") == 0


def test_tables_sort(browser: Any, tmp_path: Path) -> None:
    steps = tuple(step(i, name, seconds) for i, (name, seconds) in enumerate((("b", 2e-6), ("a", 9e-6), ("c", 1e-5))))
    with opened(browser, written(tmp_path, profile(steps=steps))) as page:
        column = "#top tbody th"
        assert page.locator(column).all_inner_texts() == ["c", "a", "b"]
        head = page.locator("#top thead button").nth(0)
        head.click()
        assert page.locator(column).all_inner_texts() == ["a", "b", "c"]
        assert page.get_attribute("#top thead th", "aria-sort") == "ascending"
        # By number, not by text: 10.0 µs is more than 9.00 µs.
        page.locator("#top thead button").nth(3).press("Enter")
        assert page.locator(column).all_inner_texts() == ["c", "a", "b"]
        page.locator("#top thead button").nth(3).press("Enter")
        assert page.locator(column).all_inner_texts() == ["b", "a", "c"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(browser: Any, tmp_path: Path, scheme: str) -> None:
    with opened(browser, written(tmp_path, profile()), scheme) as page:
        page.eval_on_selector_all("details", "all => all.forEach(e => { e.open = true; })")
        for tab in page.locator("[role=tab]").all():
            tab.click()
            search(page, "relu", f"#{tab.get_attribute('aria-controls')}")
            found = contrasts(page)
            assert len(found) > 150
            assert [f for f in found if f[0] < LEAST_CONTRAST] == []
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")


def test_the_theme_can_be_chosen(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile()), "dark") as page:
        background = "getComputedStyle(document.body).backgroundColor"
        seen = [page.evaluate(background)]
        for _ in range(3):
            page.focus("#theme")
            page.keyboard.press("Enter")
            seen.append(page.evaluate(background))
        # Automatic is dark here; then light, dark, automatic.
        assert seen == ["rgb(20, 23, 28)", "rgb(255, 255, 255)", "rgb(20, 23, 28)", "rgb(20, 23, 28)"]
        assert page.inner_text("#theme") == "Theme: automatic"


def test_paper_is_light_and_shows_everything(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile()), "dark") as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.is_visible("#group-0 pre") and not page.is_visible("nav") and not page.is_visible("#theme")
        assert min(contrasts(page))[0] >= LEAST_CONTRAST
        # A4 has some 720 pixels between its margins.
        page.set_viewport_size({"width": 720, "height": 1000})
        wide = "Array.from(document.querySelectorAll('.scroll')).filter(e => e.scrollWidth > e.clientWidth + 1)"
        assert page.evaluate(f"{wide}.map(e => e.textContent.trim().slice(0, 40))") == []
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.get_attribute("#group-0", "open") is None
        assert page.pdf().startswith(b"%PDF")


def test_the_keyboard_reaches_everything(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile(graphs=(GraphText("fused", GROUP_TEXT),)))) as page:
        reached = []
        for _ in range(80):
            page.keyboard.press("Tab")
            name = active(page, "e.id || e.dataset.do || e.getAttribute('role') || e.tagName")
            if name == "BODY":
                break
            reached.append(name)
            ring = active(
                page, "[getComputedStyle(e).outlineStyle, getComputedStyle(e.querySelector('rect') || e).stroke]"
            )
            # A ring around it, or around its box in a picture, in the colour of rings.
            assert ring[0] not in ("none", "auto") or ring[1] == "rgb(179, 38, 30)", (name, ring)
        wanted = {"A", "theme", "img", "tab-stage0", "INPUT", "next", "fold", "treeitem", "SUMMARY", "BUTTON"}
        assert wanted <= set(reached)
        # One stop for each chart, and one for the graph.
        assert reached.count("img") == 3 and reached.count("treeitem") == 1
        assert reached[0] == "A" and active(page, "e.tagName") == "BODY"


def test_charts_and_graph_by_arrow_keys(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile(graphs=(GraphText("fused", GROUP_TEXT),)))) as page:
        page.focus("#memory-chart .mark")
        assert "%a\nfloat32[4, 8] of prim::FusionGroup" in page.inner_text("#tip")
        page.keyboard.press("ArrowRight")
        assert "%b\nfloat32[4, 8] of aten::softmax" in page.inner_text("#tip")
        page.keyboard.press("Escape")
        assert not page.is_visible("#tip")
        page.focus(".item[tabindex='0']")
        label = "e.getAttribute('aria-label')"
        assert active(page, label) == "x"
        page.keyboard.press("ArrowDown")
        assert active(page, label).startswith("group 0: relu+tanh, fusion group, 2 operators")
        page.keyboard.press("ArrowLeft")
        assert active(page, "e.getAttribute('aria-expanded')") == "false"
        page.keyboard.press("Enter")
        assert active(page, "e.getAttribute('aria-expanded')") == "true"
        page.keyboard.press("ArrowRight")
        assert active(page, label).startswith("relu")
        assert "aten::relu" in page.inner_text(".about")
        page.keyboard.press("ArrowLeft")
        assert active(page, label).startswith("group 0")
        page.keyboard.press("End")
        assert active(page, label).startswith("output")


def test_marks_say_what_they_are_under_the_pointer(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile())) as page:
        page.hover("#timeline-chart .mark >> nth=1")
        tip = page.inner_text("#tip")
        assert "step 1: softmax" in tip and "encoder.0" in tip
        page.mouse.move(5, 5)
        assert not page.is_visible("#tip")


def test_readers_of_screens_find_names(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, profile())) as page:
        faults = page.evaluate(
            r"""() => {
  const named = (e) => e.textContent.trim() || e.getAttribute("aria-label") || e.labels && e.labels.length;
  const ids = Array.from(document.querySelectorAll("[id]")).map((e) => e.id);
  const refs = Array.from(document.querySelectorAll("[aria-labelledby], [aria-controls]"))
    .flatMap((e) => [e.getAttribute("aria-labelledby"), e.getAttribute("aria-controls")])
    .flatMap((names) => (names || "").split(/\s+/)).filter(Boolean);
  return {
    unnamed: Array.from(document.querySelectorAll("button, a, input, [role=treeitem], .mark"))
      .filter((e) => !named(e)).map((e) => e.outerHTML),
    heads: Array.from(document.querySelectorAll("th:not([scope])")).length,
    pictures: Array.from(document.querySelectorAll("svg")).filter((e) => !e.closest("[aria-hidden=true]") &&
      !(e.getAttribute("role") && (e.getAttribute("aria-label") || e.querySelector("title")))).length,
    twice: ids.filter((id, i) => ids.indexOf(id) !== i),
    lost: refs.filter((id) => !ids.includes(id)),
    clickable: document.querySelectorAll("div[onclick], span[onclick]").length,
    lang: document.documentElement.lang,
    headings: Array.from(document.querySelectorAll("h1, h2, h3")).map((e) => Number(e.tagName[1])),
  };
}"""
        )
        headings = faults.pop("headings")
        assert faults == {
            "unnamed": [], "heads": 0, "pictures": 0, "twice": [], "lost": [], "clickable": 0, "lang": "en",
        }  # fmt: skip
        assert headings[0] == 1 and headings.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(headings))


def test_hostile_names_are_shown_and_not_obeyed(browser: Any, tmp_path: Path) -> None:
    with opened(browser, written(tmp_path, hostile_profile())) as page:
        page.eval_on_selector_all("details", "all => all.forEach(e => { e.open = true; })")
        for tab in page.locator("[role=tab]").all():
            tab.click()
        search(page, "</script>", "#graph-stage1")
        page.hover("#memory-chart .mark >> nth=0")
        assert page.evaluate("window.hacked") is None
        assert shown(page, "img") == 0
        assert "</script><script>window.hacked=1</script>" in page.inner_text("h1")
        # Long names wrap: the page is no wider than the window.
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    "changes",
    [
        {"graphs": (GraphText("frozen", "graph():\n  return ()\n"),), "steps": (), "groups": (), "memory": None},
        {"groups": (), "kernels": ()},
        {"runner": "interpreter", "reason": "it prints", "memory": None, "groups": (), "kernels": ()},
        {"graphs": ()},
    ],
    ids=["empty", "no groups", "interpreter", "no graphs"],
)
def test_pages_with_little_in_them(browser: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    with opened(browser, written(tmp_path, profile(**changes))) as page:
        assert shown(page, ".note") >= 1
        page.click("#theme")


def test_without_scripts_the_numbers_are_there(browser: Any, tmp_path: Path) -> None:
    path = written(tmp_path, profile())
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(path.as_uri())
        assert page.is_visible("#bars") and page.is_visible("#roofline-chart") and page.is_visible("noscript p")
    finally:
        context.close()


def test_5000_operators_stay_responsive(browser: Any, tmp_path: Path) -> None:
    steps = tuple(step(i, "relu", 1e-6 * (1 + i % 13)) for i in range(5000))
    found = replace(profile(steps=steps), graphs=tuple(GraphText(s, chain(5000)) for s in ("frozen", "fused", "plan")))
    path = written(tmp_path, found)
    assert path.stat().st_size < 10_000_000
    start = time.perf_counter()
    with opened(browser, path) as page:
        assert page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(() => done(1))))") == 1
        assert time.perf_counter() - start < LARGE_LOAD
        # Folded at first, and only what is unfolded is drawn.
        assert 48 <= shown(page, ".item") <= 60
        assert page.is_disabled("#graph-stage0 [data-do=unfold]")
        start = time.perf_counter()
        page.click("#graph-stage0 .item.scope.closed >> nth=3")
        assert time.perf_counter() - start < LARGE_ANSWER
        assert shown(page, ".item.scope.open") == 1
        start = time.perf_counter()
        assert search(page, "py:3210:4") == "1 of 1 found"
        assert time.perf_counter() - start < LARGE_ANSWER
        assert page.is_visible(".item.now")
        assert search(page, "relu").startswith("1 of ")
        page.click("#graph-stage0 [data-do=fit]")
        start = time.perf_counter()
        page.click("#tab-stage2")
        assert shown(page, "#graph-stage2 .item") >= 48
        assert time.perf_counter() - start < LARGE_ANSWER


SILERO = Path(os.environ.get("GPUJIT_TEST_MODELS", ".")) / "silero_vad.jit"


def silero() -> tuple[Any, list[Any]]:
    if not SILERO.is_file():
        pytest.skip("GPUJIT_TEST_MODELS names no folder that ci/fetch_models.sh filled")
    return gpujit.load(SILERO), [np.random.default_rng(0).standard_normal((1, 512), np.float32), 16000]


@pytest.mark.parametrize(
    "make, module, operator",
    [
        (silero, "encoder.2", "conv1d"),
        (nets.resnet18, "layer3.1.conv2", "conv2d"),
        (nets.bert, "encoder.1.dense", "linear"),
    ],
    ids=["silero", "resnet18", "bert"],
)
def test_reports_of_models(browser: Any, tmp_path: Path, make: Any, module: str, operator: str) -> None:
    model, inputs = make()
    found = gpujit.profile_module(model, inputs, rounds=3, ceilings=False, file=HOSTILE)
    with opened(browser, written(tmp_path, found), "dark") as page:
        assert page.evaluate("window.hacked") is None
        # Figures are the profile's.
        assert found.groups and found.speedup is not None and found.memory is not None
        assert page.inner_text("#speedup") == f"{found.speedup.median:.2f}×"
        assert shown(page, "#bars tbody tr") == len(found.groups)
        assert shown(page, "#bars svg.bars rect") == 2 * sum(g.fused is not None for g in found.groups)
        assert shown(page, "#memory-chart .mark") == len(found.memory.values)
        assert shown(page, "#steps tbody tr") == len(found.steps)
        assert shown(page, "#kernels ~ details pre") >= len(found.groups)
        for i in range(len(found.graphs)):
            page.click(f"#tab-stage{i}")
            panel = f"#graph-stage{i}"
            assert shown(page, f"{panel} .item") > 5 and shown(page, f"{panel} .edge") > 4
            # By module and operator: what is found is unfolded, and shows where it comes from.
            assert search(page, f"{module} {operator}", panel).startswith("1 of ")
            assert page.is_visible(f"{panel} .item.now")
            assert module in page.inner_text(f"{panel} .about")
            drawn = shown(page, f"{panel} .item")
            page.click(f"{panel} [data-do=fold]")
            assert shown(page, f"{panel} .item") < drawn
            page.click(f"{panel} [data-do=unfold]")
            assert shown(page, f"{panel} .item.closed") == 0
        assert [c for c in contrasts(page) if c[0] < LEAST_CONTRAST] == []


def test_a_model_without_operators(browser: Any, tmp_path: Path) -> None:
    found = gpujit.profile_module(gpujit.script(nets.Same()), [np.zeros((2, 3), np.float32)], rounds=2, ceilings=False)
    with opened(browser, written(tmp_path, found)) as page:
        assert "Nothing was fused" in page.inner_text("main")
        assert "No tensor lies in planned memory" in page.inner_text("main")
        assert page.locator("#graph-stage0 .item").all_inner_texts() != []


def test_a_model_that_the_interpreter_runs(browser: Any, tmp_path: Path) -> None:
    model, inputs = nets.bert()
    with gpujit.profile(ceilings=False) as taken:
        model(*inputs)
    with opened(browser, written(tmp_path, taken.profile)) as page:
        assert "the model runs on the interpreter" in page.inner_text("#summary ~ .note")
        assert "No memory was planned" in page.inner_text("main")
        assert "interpreted call" in page.inner_text("#top")
        assert search(page, "encoder.1.dense linear").startswith("1 of ")
