"""The page of a run in a real Chromium: it loads, says nothing on the console, fits, and every number is the files'."""

import json
import re
import struct
from pathlib import Path
from urllib.parse import unquote

import page_reader
import pytest
from chromium import DARK, DESK, LIGHT, PHONE

pytestmark = pytest.mark.browser

SIZES = pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
SCHEMES = pytest.mark.parametrize("scheme", [DARK, LIGHT], ids=["dark", "light"])
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
PROBE = (Path(__file__).parent / "probe.js").read_text()


def probed(page):
    """A copy of the page that measures itself; only the copy is allowed a script."""
    html = page.read_text(encoding="utf-8")
    assert html.count(POLICY) == 1
    assert html.count("</body>") == 1
    copy = page.with_name("probed.html")  # beside it, for the sake of its links
    html = html.replace(POLICY, f"{POLICY}; script-src 'unsafe-inline'")
    copy.write_text(html.replace("</body>", f"<script>{PROBE}</script></body>"), encoding="utf-8")
    return copy


def measured(browser, page, tmp_path, **how):
    messages, dom = browser.look(probed(page), tmp_path / "profile", "--dump-dom", **how)
    assert messages == []
    return json.loads(next(page_reader.parse(dom).all("body")).text)


def test_the_console_is_listened_to(browser, tmp_path):
    bad = tmp_path / "bad.html"
    policy = '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">'
    bad.write_text(f'<!doctype html><head>{policy}</head><body><img src="https://example.org/x.png"></body>')
    messages, _ = browser.look(bad, tmp_path / "profile", "--dump-dom")
    assert any("Content Security Policy" in message for message in messages), messages


def test_it_loads_without_a_word_on_the_console_and_every_number_is_the_files(browser, run, page, tmp_path):
    messages, dom = browser.look(page, tmp_path / "profile", "--dump-dom")
    assert messages == []
    assert page.stat().st_size < 1_000_000
    root = page_reader.parse(dom)
    assert page_reader.check_numbers(run, root) > 30
    assert not [tag for tag in ("script", "img", "iframe", "object", "link") if list(root.all(tag))]


@SIZES
@SCHEMES
def test_it_fits_and_is_dark_where_that_is_asked_for(browser, page, tmp_path, size, scheme):
    found = measured(browser, page, tmp_path, size=size, scheme=scheme)
    assert found["seen"] == size[0]
    assert found["width"] <= size[0], "the page is wider than the window"
    assert found["outside"] == [], "letters of a picture are cut off"
    assert found["overlapping"] == [], "letters of a picture lie on each other"
    brightness = sum(map(int, re.findall(r"\d+", found["background"])[:3]))
    assert brightness < 150 if scheme == DARK else brightness > 600


def test_links_lead_somewhere(browser, page, tmp_path):
    links = measured(browser, page, tmp_path)["links"]
    assert len(links) > 10
    assert [href for href, there in links if not there] == []
    files = [unquote(href) for href, _ in links if not href.startswith(("#", "https://"))]
    assert [name for name in files if not (page.parent / name).exists()] == []


@SIZES
@SCHEMES
def test_it_is_drawn(browser, run, page, tmp_path, request, size, scheme):
    folder = request.config.getoption("--pictures") or tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    name = run.parent.name if run.name == "run" else run.name
    picture = (folder / f"{name}-{size[0]}-{'dark' if scheme == DARK else 'light'}.png").absolute()
    height = min(measured(browser, page, tmp_path, size=size)["height"], 12_000)
    drawn = {"size": (size[0], height), "scheme": scheme}
    messages, _ = browser.look(page, tmp_path / "profile", f"--screenshot={picture}", **drawn)
    assert messages == []
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", head[16:24]) == (size[0], height)
    assert picture.stat().st_size > 20_000
