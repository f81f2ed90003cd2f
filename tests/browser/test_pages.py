"""Pages in a browser: they fit, say nothing on the console, and work without a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inspector.report import examined
from tests.browser.conftest import SAMPLES, WORDS

pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.browser

NAMES = tuple(WORDS)
NARROW, WIDE = 400, 1400
THEMES = ("light", "dark")

UNREADABLE = """() => {
  const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const linear = [r, g, b].map((c) => c / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) =>
    c * (top[3] ?? 1) + below[i] * (1 - (top[3] ?? 1)));
  const behind = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement) {
      const style = getComputedStyle(at);
      if (at instanceof SVGSVGElement && at !== element) {
        const shape = [...at.children].find((one) => one.tagName === "rect");
        const fill = shape && getComputedStyle(shape);
        if (fill && fill.fill.startsWith("rgb")) {
          found.push([...parsed(fill.fill).slice(0, 3), Number(fill.opacity)]);
        }
      }
      found.push(parsed(style.backgroundColor));
    }
    return found.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (["TITLE", "DESC", "SCRIPT", "STYLE"].includes(element.tagName.toUpperCase())) continue;
    seen += 1;
    const style = getComputedStyle(element);
    const colour = element instanceof SVGElement ? style.fill : style.color;
    const [one, other] = [luminance(parsed(colour)), luminance(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) bad.push([walker.currentNode.data.slice(0, 30), colour, ratio]);
  }
  return [seen, bad];
}"""

STICKING_OUT = """() => [...document.querySelectorAll(".map svg svg > text")]
  .filter((text) => getComputedStyle(text).display !== "none")
  .map((text) => [text.textContent, text.getBBox(), text.parentElement.getBoundingClientRect()])
  .filter(([, text, part]) => text.x + text.width > part.width + 0.5)
  .map(([words]) => words)"""

OVERLAPPING = """() => [...document.querySelectorAll(".ruler")].flatMap((ruler) => {
  const spans = [...ruler.children].filter((one) => one.checkVisibility())
    .map((one) => one.getBoundingClientRect()).sort((a, b) => a.left - b.left);
  return spans.slice(1).filter((one, at) => one.left < spans[at].right).length;
}).reduce((a, b) => a + b, 0)"""


OPENED = "(on) => document.querySelectorAll('details').forEach((one) => { one.open = on; })"


@contextmanager
def shown(chromium: Any, address: str, width: int = WIDE, **context: Any) -> Iterator[Any]:
    """A page in a window; whatever the browser complains about fails."""
    complaints: list[str] = []
    with chromium.new_context(viewport={"width": width, "height": 900}, **context) as window:
        page = window.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: asked.url == address or complaints.append(asked.url))
        page.goto(address)
        yield page
        assert complaints == []


@pytest.mark.parametrize("name", NAMES)
def test_it_fits(chromium: Any, pages: dict[str, str], name: str) -> None:
    with shown(chromium, pages[name]) as page:
        for opened in (False, True):
            page.evaluate(OPENED, opened)
            for width in (320, NARROW, 640, 700, 960, 1000, WIDE):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.scrollingElement.scrollWidth") <= width, width
                assert page.evaluate(STICKING_OUT) == [], width
                assert page.evaluate(OVERLAPPING) == 0, width


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", NAMES)
def test_every_text_can_be_read(
    chromium: Any, pages: dict[str, str], name: str, theme: str
) -> None:
    with shown(chromium, pages[name], color_scheme=theme) as page:
        page.evaluate(OPENED, True)
        n_texts, unreadable = page.evaluate(UNREADABLE)
        assert n_texts > 50
        assert unreadable == []
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        channels = [int(part) for part in re.findall(r"\d+", background)]
        assert (sum(channels) < 3 * 64) == (theme == "dark")


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_facts_are_there_without_a_script(
    chromium: Any, pages: dict[str, str], width: int
) -> None:
    with shown(chromium, pages["repaired"], width, java_script_enabled=False) as page:
        for words in ("refuses", "0 → 83 reused", "the file has version 2", "synthesize-tip"):
            assert page.get_by_text(words).first.is_visible(), words
        table = page.get_by_role("region", name="table: part, from, to")
        assert not table.is_visible()
        page.get_by_text("the parts as a table").click()
        assert table.is_visible()
        assert table.get_by_text("0x2f74").first.is_visible()


def test_a_finding_and_its_bytes(chromium: Any, pages: dict[str, str]) -> None:
    with shown(chromium, pages["cut"], 700, reduced_motion="reduce") as page:
        mark = page.get_by_role("link", name="file.truncated")
        mark.click()
        card = page.locator("article:target")
        assert "0x34c..0x40b" in card.inner_text()
        assert card.evaluate("e => e.getBoundingClientRect().top < innerHeight")
        page.mouse.move(0, 0)
        band = page.locator(f"rect[data-of={card.get_attribute('id')}]").first
        assert "lit" not in band.get_attribute("class")
        card.hover()
        assert "lit" in band.get_attribute("class")
        page.mouse.move(0, 0)
        assert "lit" not in band.get_attribute("class")
        where = card.get_by_role("link", name="0x34c..0x40b")
        where.focus()
        assert "lit" in band.get_attribute("class")
        where.click()
        assert mark.evaluate("e => e.matches(':target')")
        assert mark.evaluate("e => e.getBoundingClientRect().top >= 0")


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_map_is_to_scale(chromium: Any, pages: dict[str, str], width: int) -> None:
    with examined(Path(SAMPLES / "intact/ggsq4.hybrid.xyt--qwen35-b11549-checkpoints.slot")) as one:
        spans = {child.name: child.span for child in one.tree.children}
        size = one.size
    with shown(chromium, pages["sound"], width) as page:
        picture = page.locator(".map figure > svg").first
        whole = picture.bounding_box()
        for name in ("attn", "recr", "appendix"):
            part = picture.locator("> svg", has=page.locator(f"title:text('{name} 0x')")).first
            box = part.bounding_box()
            share = len(spans[name]) / size
            assert abs(box["width"] - share * whole["width"]) < 2
            start = whole["x"] + spans[name].start / size * whole["width"]
            assert abs(box["x"] - start) < 2


def test_it_can_be_read_from_the_keyboard(chromium: Any, pages: dict[str, str]) -> None:
    with shown(chromium, pages["repaired"]) as page:
        seen = []
        for _ in range(8):
            page.keyboard.press("Tab")
            focused = page.locator(":focus")
            style = focused.evaluate("e => getComputedStyle(e).outlineStyle")
            seen.append(focused.inner_text())
            assert style != "none", seen
        assert seen[0] == "to the report"
        assert "1" in seen  # the first mark on the map


def test_nothing_moves_for_those_who_do_not_want_it(chromium: Any, pages: dict[str, str]) -> None:
    for wish, behaviour in (("no-preference", "smooth"), ("reduce", "auto")):
        with shown(chromium, pages["sound"], reduced_motion=wish) as page:
            style = "getComputedStyle(document.documentElement).scrollBehavior"
            assert page.evaluate(style) == behaviour


def test_drawings_have_a_size(chromium: Any, pages: dict[str, str]) -> None:
    """Each picture is there, with all that is drawn in it."""
    for width in (NARROW, WIDE):
        with shown(chromium, pages["sound"], width) as page:
            for picture in page.locator("svg[role=img]").all():
                box = picture.bounding_box()
                assert box["width"] > 8, picture.get_attribute("aria-label")
                assert 8 < box["height"] < 600, picture.get_attribute("aria-label")


def test_what_a_screen_reader_finds(chromium: Any, pages: dict[str, str]) -> None:
    with shown(chromium, pages["repaired"]) as page:
        assert page.get_by_role("main").count() == 1
        assert page.get_by_role("heading", level=1).count() == 1
        assert page.get_by_role("heading", level=2).count() >= 5
        image = page.get_by_role("img", name="tokens reused")
        assert "the repaired copy: 0 of 83, 83 of 84" in image.get_attribute("aria-label")
        assert page.locator("html").get_attribute("lang") == "en"


def test_a_folded_file_is_unfolded_by_its_link(chromium: Any, pages: dict[str, str]) -> None:
    with shown(chromium, pages["many"], NARROW, java_script_enabled=False) as page:
        folded = page.locator("details.fold:not([open])").last
        heading = folded.locator("h2").first
        anchor = heading.get_attribute("id")
        assert not heading.is_visible()
        page.locator(f".index a[href='#{anchor}']").click()
        assert page.locator(f"#{anchor}").is_visible()


def test_the_index_of_a_narrow_window_says_what_is_bad(
    chromium: Any, pages: dict[str, str]
) -> None:
    with shown(chromium, pages["many"], NARROW) as page:
        for at in (1, 2):
            box = page.locator(".index tbody tr").first.locator("td").nth(at).bounding_box()
            assert box["x"] + box["width"] <= NARROW, at
