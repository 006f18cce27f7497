"""Indexes of per-commit and nightly wheels: `INDEX/<commit or nightly>/[cpu/]vllm/`, pages of links (PEP 503)."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass
from html.parser import HTMLParser

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from draftkiln.refresh import web
from draftkiln.refresh.build import PACKAGES
from draftkiln.refresh.outcome import GoneError
from draftkiln.refresh.releases import machine

VARIABLE = "DRAFTKILN_VLLM_INDEX"
"""Names the index where `--index` does not."""
COMMIT = re.compile(r"[0-9a-f]{7,40}")
_PLACES = ("cpu/vllm/", "cpu/vllm-cpu/", "vllm/")


@dataclass(frozen=True)
class Link:
    """A wheel on an index's page."""

    url: str
    """Without fragment."""
    sha256: str | None
    yanked: bool
    filename: str


class _Links(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.found: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if tag != "a" or not href:
            return
        url = urllib.parse.urljoin(self.base, href)
        plain = urllib.parse.urldefrag(url).url
        filename = urllib.parse.unquote(urllib.parse.urlsplit(plain).path.rpartition("/")[2])
        self.found.append(Link(plain, web.sha256_of_url(url), "data-yanked" in values, filename))


def links(text: str, base: str) -> list[Link]:
    """The wheels of vLLM for this machine on an index's page, newest version first; others are left out."""
    parser = _Links(base)
    parser.feed(text)
    found = []
    for link in parser.found:
        try:
            name, version, build, _ = parse_wheel_filename(link.filename)
        except InvalidWheelFilename:
            continue
        if canonicalize_name(name) in PACKAGES and machine().takes(link.filename):
            found.append(((version, build), link))
    return [link for _, link in sorted(found, key=lambda item: item[0], reverse=True)]


def find(index: str, what: str) -> tuple[Link, bool]:
    """The wheel of a commit, or of `nightly`, and whether it is the CPU build.

    The CPU build is looked for first: it is the one that can be proved without a GPU. An index that does not answer
    ends the search: nothing is concluded from a page that could not be read.

    Raises:
        GoneError: the index has no such page, or no wheel for this machine on it.
        UnansweredError: it could not be asked.
    """
    base = f"{index.rstrip('/')}/{what}/"
    seen = []
    for place in _PLACES:
        url = base + place
        try:
            text = web.page(url)
        except GoneError:
            seen.append(f"{url}: not there")
            continue
        offered = links(text, url)
        usable = [link for link in offered if not link.yanked]
        if usable:
            return usable[0], place.startswith("cpu")
        seen.append(f"{url}: {'only yanked wheels' if offered else f'no wheel for {machine()}'}")
    raise GoneError(
        f"{what}: the index has no wheel of it",
        why="; ".join(seen),
        fix="old nightlies and per-commit wheels are removed after some weeks: name one that exists",
    )
