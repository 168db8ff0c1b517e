"""A browser for tests: found, never downloaded. What a page complains about or asks for fails the test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Set where the tests must not be skipped.
REQUIRED = "GPUJIT_REQUIRE_BROWSER"


def find_browser() -> str | None:
    """The path of a browser: that of GPUJIT_TEST_BROWSER, or the first that is installed."""
    given = os.environ.get("GPUJIT_TEST_BROWSER")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def launched() -> Iterator[Any]:
    """A headless browser. Skips the test where there is none, or fails it where the environment asks for one."""
    path = find_browser()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set, and there is no browser or no playwright")
        pytest.skip("needs chromium and playwright")
    with sync_playwright() as play:
        # Containers have neither the rights for the sandbox nor much shared memory.
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, path: Path, scheme: str = "light", **options: Any) -> Iterator[Any]:
    """The file in a tab of its own. Fails when the page complains on the console or asks for anything but itself."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 900}, **options)
    page = context.new_page()
    page.set_default_timeout(10_000)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    try:
        page.goto(path.as_uri())
        yield page
        assert complaints == []
        assert requests == [path.as_uri()]
    finally:
        context.close()


# The least contrast of WCAG AA for text of usual size.
LEAST_CONTRAST = 4.5

CONTRASTS = r"""() => {
  const parts = (text) => {
    const numbers = text.match(/[\d.]+/g).map(Number);
    const scale = text.startsWith("color(srgb") ? 255 : 1;
    return [numbers[0] * scale, numbers[1] * scale, numbers[2] * scale, numbers.length > 3 ? numbers[3] : 1];
  };
  const light = (c) => {
    const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = c.slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3])).concat(1);
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      if (e instanceof SVGElement) {
        // What a text in a picture stands on is the last shape drawn under its middle.
        if (e !== element) continue;
        const box = e.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
        for (const shape of e.ownerSVGElement.querySelectorAll("rect")) {
          const r = shape.getBoundingClientRect(), isUnder = shape.compareDocumentPosition(e) & 4;
          if (!isUnder || x < r.left || x > r.right || y < r.top || y > r.bottom) continue;
          const style = getComputedStyle(shape), fill = parts(style.fill);
          fill[3] *= Number(style.fillOpacity);
          layers.unshift(fill);
        }
        continue;
      }
      const color = parts(getComputedStyle(e).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = Array.from(element.childNodes).filter((n) => n.nodeType === 3).map((n) => n.data).join("").trim();
    if (!text || element.matches("script, style, title, desc") || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const back = behind(element), front = over(parts(element instanceof SVGElement ? style.fill : style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), element.tagName + "." + element.getAttribute("class"), text.slice(0, 40)]);
  }
  return found;
}"""


def contrasts(page: Any) -> list[tuple[float, str, str]]:
    """Contrast, element and text of whatever text can be seen."""
    found: list[tuple[float, str, str]] = page.evaluate(CONTRASTS)
    return found
