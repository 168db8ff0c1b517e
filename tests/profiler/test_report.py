"""The report's page as text: nothing from elsewhere, no name obeyed, sensible without data, all or nothing on disk."""

from __future__ import annotations

import base64
import configparser
import errno
import fnmatch
import hashlib
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gpujit.profiler import report
from gpujit.profiler.data import GraphText, KernelSource, Place, Profile
from gpujit.support.errors import SaveError
from tests.profiler.samples import GROUP_TEXT, HOSTILE, profile, step

# Elements that the template has, and only once each.
SCRIPTS = 3


class Reader(HTMLParser):
    """Elements and attributes of a page, and the text of each script and style."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.ids: list[str] = []
        self.bodies: list[tuple[str, str]] = []
        self.text = ""
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag in ("script", "style"):
            self._inside = "data" if ("type", "application/json") in attrs else tag
            self.bodies.append((self._inside, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            kind, body = self.bodies[-1]
            self.bodies[-1] = (kind, body + data)
        else:
            self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def hostile(value: Any) -> Any:
    """The same data with every text in it replaced."""
    if isinstance(value, str):
        return HOSTILE
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: hostile(getattr(value, f.name)) for f in fields(value)})
    return tuple(map(hostile, value)) if isinstance(value, tuple) else value


def hostile_profile() -> Profile:
    """Every text hostile but those that say how the rest is read."""
    found: Profile = hostile(profile())
    (kernel,) = found.kernels
    text = GROUP_TEXT.replace("(%t)", '[name="</script><script>window.hacked=1</script>"](%t)', 1)
    return replace(
        found,
        graphs=(GraphText(HOSTILE, text), GraphText("fused", GROUP_TEXT)),
        kernels=(replace(kernel, key=found.groups[0].kernel),),
    )


def test_the_page_has_every_part() -> None:
    page = read(report.html(profile()))
    for part in ("summary", "groups", "roofline", "timeline", "memory", "graph", "operators", "refusals", "kernels"):
        assert part in page.ids
    assert len(page.ids) == len(set(page.ids))
    for text in ("1.30×", "relu+tanh", "define void @k()", "it is too large", "12 passes", "x = torch.relu(y)"):
        assert text in page.text


def test_nothing_comes_from_elsewhere() -> None:
    page = report.html(profile())
    assert "//" not in re.sub(r"\s//[^\n]*", "", page.replace("http://www.w3.org/2000/svg", ""))
    links = [v for n, v in read(page).attributes if n in ("src", "href")]
    assert all(v is not None and v.startswith(("#", "data:,")) for v in links)


def test_the_policy_allows_what_the_page_has_and_no_more() -> None:
    page = read(report.html(profile()))
    policy = next(v for n, v in page.attributes if n == "content" and v and "default-src" in v)
    assert policy is not None
    hashes = set(re.findall(r"'sha256-([^']+)'", policy))
    wanted = {
        base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        for kind, body in page.bodies
        if kind != "data"
    }
    assert hashes == wanted and len(wanted) == SCRIPTS
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    assert not [n for n, _ in page.attributes if n == "style" or n.startswith("on")]


def test_no_name_is_obeyed() -> None:
    page = report.html(hostile_profile())
    found = read(page)
    assert found.tags.count("script") == SCRIPTS and "img" not in found.tags
    assert not [n for n, _ in found.attributes if n.startswith("on")]
    # Neither a terminal's nor a reader's direction is turned, and no character is there that XML forbids.
    for c in ("\x1b", "\x00", "\u202e", "\u2028"):
        assert c not in page
    assert "{{7*7}}" in found.text
    # 10,000 characters are cut; the kernel's source alone is shown whole.
    (code,) = re.findall(r"<pre[^>]*Source of[^>]*><code>(.*?)</code>", page, re.DOTALL)
    assert "n" * 10_000 in code
    assert page.count("n" * 10_000) <= 2


def test_data_cannot_leave_their_script() -> None:
    page = read(report.html(hostile_profile()))
    (data,) = [body for kind, body in page.bodies if kind == "data"]
    assert "<" not in data and data.isascii()
    assert "window.hacked" in json.dumps(json.loads(data))


def test_what_utf8_cannot_hold_is_shown_as_an_escape() -> None:
    page = report.html(profile("model\ud800.pt", kernels=(KernelSource("k0", "k", "text", "a\ud800b"),)))
    assert b"model\\ud800.pt" in page.encode() and b"a\\ud800b" in page.encode()


@pytest.mark.parametrize(
    "changes, note",
    [
        ({"groups": ()}, "Nothing was fused"),
        ({"steps": ()}, "its graph is empty"),
        ({"graphs": ()}, "There is no graph to draw"),
        ({"graphs": (GraphText("frozen", "graph():\n  return ()\n"),)}, "There is no graph to draw"),
        ({"graphs": (GraphText("frozen", "no graph at all"),)}, "There is no graph to draw"),
        ({"memory": None}, "No memory was planned"),
        ({"runner": "interpreter", "reason": "it prints"}, "because it prints"),
        ({"refusals": ()}, "Nothing was refused"),
        ({"speedup": None, "fused": None, "unfused": None}, "not measured"),
        ({"kernels": ()}, "There is no kernel source"),
    ],
)
def test_what_is_missing_is_said(changes: dict[str, Any], note: str) -> None:
    assert note in read(report.html(profile(**changes))).text


def test_a_profile_of_nothing_is_a_page() -> None:
    page = report.html(
        profile(
            inputs=(),
            steps=(),
            groups=(),
            graphs=(),
            kernels=(),
            refusals=(),
            phases=(),
            memory=None,
            fused=None,
            unfused=None,
            speedup=None,
            runner="interpreter",
        )
    )
    assert read(page).tags.count("script") == SCRIPTS - 2


def test_equal_steps_are_one_row() -> None:
    steps = [step(0, "relu", 1e-6), step(1, "mm", 5e-6, flops=None), step(2, "relu", 2e-6, bytes_read=None)]
    mm, relu = report.operators(steps)
    assert (mm["label"], mm["flops"]) == ("mm", None)
    assert (relu["count"], relu["bytes"], relu["flops"]) == (2, 8192, 4000)
    assert relu["seconds"] == pytest.approx(3e-6)


def test_groups_stand_by_what_they_gain() -> None:
    one = profile().groups[0]
    page = report.html(profile(groups=(replace(one, fused=None, unfused=None), replace(one, number=1))))
    numbers = re.findall(r'<th scope="row" class="number" data-v="\d+"><a href="#group-(\d)">', page)
    assert numbers == ["1", "0"]


def test_a_place_says_module_and_line() -> None:
    place = Place("code/__torch__.py:7", "model.py:9", "encoder.0", "")
    text = read(report.html(profile(steps=(step(0, "relu", 1e-6, place=place),)))).text
    assert "model.py:9 in encoder.0" in text


def test_write_takes_paths_and_file_objects(tmp_path: Path) -> None:
    report.write(profile(), tmp_path / "a.html")
    stream = io.BytesIO()
    report.write(profile(), stream)
    assert (tmp_path / "a.html").read_bytes() == stream.getvalue()
    assert stream.getvalue().startswith(b"<!DOCTYPE html>")
    profile().save_html(tmp_path / "b.html")
    assert (tmp_path / "b.html").read_bytes() == stream.getvalue()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.html"
    target.write_text("before")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveError, match="No space left"):
        report.write(profile(), target)
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.html"]


def test_the_wheel_has_the_templates() -> None:
    root = Path(report.__file__).parents[2]
    settings = configparser.ConfigParser()
    settings.read(root / "setup.cfg")
    patterns = settings["options.package_data"]["gpujit.profiler"].replace("\n", ",").split(",")
    for file in Path(report.__file__).parent.joinpath("templates").iterdir():
        assert any(fnmatch.fnmatch(f"templates/{file.name}", p.strip()) for p in patterns)


def test_jinja_is_loaded_for_a_report_only() -> None:
    code = "import sys, gpujit.profiler.report; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
