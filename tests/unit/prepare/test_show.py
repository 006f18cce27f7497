"""A person can see which tokens are trained."""

import json

import pytest

from draftkiln.errors import UsageError
from draftkiln.prepare import show

from .stubs import Tokenizer


class Bytes:
    """A token a byte, as a byte-level tokenizer has for rare characters."""

    def decode(self, ids):
        return bytes(ids).decode("utf-8", "replace")


def test_trained_tokens_stand_out_with_and_without_colours():
    tokenizer = Tokenizer()
    ids = tokenizer.encode("Hi? Yes.")
    shown = list(show.pieces(tokenizer, ids, [0, 0, 0, 1, 1]))
    assert show.marked(shown) == "Hi? ⟦Yes.⟧"
    assert "\x1b[30;42mYes\x1b[0m" in show.coloured(shown)
    assert "\x1b[2mHi\x1b[0m" in show.coloured(shown)


def test_a_character_of_several_tokens_is_shown_whole_and_the_mask_is_kept_apart():
    ids = [*"é".encode(), *"ü".encode()]
    shown = list(show.pieces(Bytes(), ids, [0, 0, 1, 1]))
    assert [(piece.text, len(piece.ids), piece.trained) for piece in shown] == [("é", 2, False), ("ü", 2, True)]
    split = list(show.pieces(Bytes(), ids[:2], [0, 1]))
    assert [piece.trained for piece in split] == [False, True]


def test_the_page_escapes_text_and_names_ids():
    shown = [show.Piece("<b>", (7, 8), trained=True), show.Piece("&", (9,), trained=False)]
    page = show.page(shown, "sample 0: a<b", "3 tokens")
    assert '<span class="t" title="7 8">&lt;b&gt;</span><span class="c" title="9">&amp;</span>' in page
    assert "<h1>sample 0: a&lt;b</h1>" in page


def test_a_sample_is_found_by_number_and_by_place(tmp_path):
    file = tmp_path / "sources.jsonl"
    places = ["data/d.jsonl:1", "data/d.jsonl:3"]
    file.write_text("".join(json.dumps({"index": n, "source": place}) + "\n" for n, place in enumerate(places)))
    assert show.find(file, "1") == show.find(file, "d.jsonl:3") == show.find(file, "data/d.jsonl:3") == (1, places[1])
    with pytest.raises(UsageError, match=r"no sample is d\.jsonl:2"):
        show.find(file, "d.jsonl:2")
