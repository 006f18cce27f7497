import re
import string
from pathlib import Path

import pytest
from fake_releases import mail
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.errors import ProblemsError
from draftkiln.patches import header
from draftkiln.patches.header import UpstreamState

PATH = Path("patches/speculators/x.patch")
DIFF = """\
diff --git a/speculators/a.py b/speculators/a.py
--- a/speculators/a.py
+++ b/speculators/a.py
@@ -1 +1 @@
-a
+b
"""


def problems(text):
    with pytest.raises(ProblemsError) as caught:
        header.parse(text, PATH)
    return [problem.what for problem in caught.value.problems]


def test_a_header_is_read_field_by_field():
    text = mail(
        "Pass block_size",
        Bug="https://example.org/279",
        Needs_Vllm=">=0.16,<0.33 [block_size has no default]",
        Check="tests/engine/extract/test_series.py::TestIt::test_it",
    )
    found = header.parse(text + DIFF, PATH)
    assert found.subject == "Pass block_size"
    assert found.author == "A Person <a@example.org>"
    assert found.date.isoformat() == "2026-11-29T12:00:00+00:00"
    assert found.upstream_state is UpstreamState.INAPPROPRIATE
    assert found.upstream_note == "upstream removed the file"
    assert found.bugs == ("https://example.org/279",)
    assert found.base == "1.0"
    assert found.needs_vllm is not None
    assert "0.20.2" in found.needs_vllm
    assert "0.15" not in found.needs_vllm
    assert found.needs_vllm_note == "block_size has no default"
    assert found.checks == ("tests/engine/extract/test_series.py::TestIt::test_it",)
    assert found.prose.startswith("It fails.")
    assert "Base" not in found.prose


def test_folded_and_encoded_fields_are_joined():
    text = mail("=?UTF-8?q?Pass_=C3=A9?=\n and more", Drop_When="upstream has it\n and we moved")
    found = header.parse(text + DIFF, PATH)
    assert found.subject == "Pass é and more"
    assert found.drop_when == "upstream has it and we moved"


def test_every_problem_is_told_at_once_with_its_line():
    text = mail(
        Upstream_Status="Sometime",
        Base="speculators>=0.3",
        Check="the engine test",
        Needs_Vllm="new",
        Origin=None,
        Orign="typo",
    )
    found = problems(text + DIFF)
    assert all(what.startswith(f"{PATH}:") for what in found)
    line = {word: text.split("\n").index(f"{word}") + 1 for word in text.split("\n") if ": " in word}
    for start, words in {
        "Upstream-Status: ": "none of",
        "Base: ": "does not pin",
        "Check: ": "names no test",
        "Needs-Vllm: ": "no version range",
        "Orign: ": "unknown trailer",
    }.items():
        number = next(number for text, number in line.items() if text.startswith(start))
        assert any(what.startswith(f"{PATH}:{number}: ") and words in what for what in found), words
    assert any("Origin is missing" in what for what in found)
    assert len(found) == 6


@pytest.mark.parametrize("state", ["Submitted", "Backport", "Denied"])
def test_a_status_that_points_somewhere_must_say_where(state):
    assert "does not say where" in problems(mail(Upstream_Status=state) + DIFF)[0]
    assert header.parse(mail(Upstream_Status=f"{state} [https://example.org/1]") + DIFF, PATH).upstream_note


@pytest.mark.parametrize("line", ["diff -u a b", "---", "--- a/x", "+++ b/x", "@@ -1 +1 @@", "Index: x"])
def test_prose_that_git_would_take_for_the_diff_is_refused(line):
    text = mail(prose=f"It fails.\n\n{line}\nmore") + DIFF
    if line == "---":
        assert any("no trailers" in what for what in problems(text))
    else:
        assert any("start of the diff" in what for what in problems(text))


def test_a_first_line_that_git_would_take_for_a_header_is_refused():
    assert any("as a mail header" in what for what in problems(mail(prose="Subject: other\n\nIt fails.") + DIFF))


def test_a_patch_without_prose_must_justify_itself():
    assert any("the message is empty" in what for what in problems(mail(prose="") + DIFF))


def test_trailers_missing_altogether_are_one_problem():
    text = "From: A <a@b.c>\nDate: Sun, 29 Nov 2026 12:00:00 +0000\nSubject: x\n\nProse only.\n\n"
    found = problems(text + DIFF)
    assert len(found) == 1
    assert "no trailers" in found[0]


_WORDS = st.text(string.ascii_letters + string.digits + " éß'()/.,", min_size=1).map(str.strip).filter(bool)
_VERSIONS = st.lists(st.integers(0, 99), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
_TESTS = st.from_regex(r"tests/[a-z_]{1,9}\.py::test_[a-z]{1,9}", fullmatch=True)


@given(
    st.tuples(
        _WORDS,
        _WORDS,
        st.sampled_from(UpstreamState),
        _WORDS,
        _VERSIONS,
        st.lists(_TESTS, min_size=1, max_size=3),
        _WORDS,
    )
)
def test_what_is_written_is_read(words):
    subject, prose, state, note, base, checks, drop_when = words
    text = mail(
        subject,
        prose=f"Why: {prose}",
        base=base,
        Upstream_Status=f"{state.value} [{note}]",
        Check="\nCheck: ".join(checks),
        Drop_When=drop_when,
    )
    found = header.parse(text + DIFF, PATH)
    assert (found.subject, found.prose, found.upstream_state, found.upstream_note) == (
        subject,
        f"Why: {prose}",
        state,
        note,
    )
    assert (found.base, found.checks, found.drop_when) == (base, tuple(checks), drop_when)


_LINES = st.one_of(
    st.text(max_size=30).map(lambda text: text.replace("\n", " ")),
    st.sampled_from(
        [*mail().split("\n"), *DIFF.split("\n"), "", "---", " folded", "Check: x", "Base: y==1", "Date: z"]
    ),
)


@given(st.lists(_LINES, max_size=25))
def test_any_text_is_read_or_refused_with_file_and_line(lines):
    text = "\n".join(lines)
    try:
        header.parse(text, PATH)
    except ProblemsError as error:
        for problem in error.problems:
            match = re.match(rf"{re.escape(str(PATH))}:(\d+): \S", problem.what)
            assert match, problem.what
            assert 1 <= int(match[1]) <= len(lines) + 1
