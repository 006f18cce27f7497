import pytest

from draftkiln.errors import PatchError, ProblemsError
from draftkiln.seams.owners import owner_lookup, read_series

FILE = "speculators/data_generation/a.py"
HEAD = """From: A Person <a@example.org>
Date: Sun, 29 Nov 2026 12:00:00 +0000
Subject: Mend it

It fails.

Upstream-Status: Pending
Origin: draftkiln
Base: speculators==0.3.0
Check: tests/test_it.py::test_it
Drop-When: upstream has it

"""
FIRST = f"""{HEAD}diff --git a/{FILE} b/{FILE}
--- a/{FILE}
+++ b/{FILE}
@@ -1,3 +1,4 @@
 one
-two
+two, mended
+between
 three
"""
SECOND = f"""{HEAD}diff --git a/{FILE} b/{FILE}
--- a/{FILE}
+++ b/{FILE}
@@ -2,3 +2,3 @@
 two, mended
-between
+between, again
 three
"""


def test_each_line_has_the_patch_that_wrote_it_last(tree):
    sources = tree({FILE: "one\ntwo, mended\nbetween, again\nthree\n"}, "tree")
    owner = owner_lookup(sources, [("first", FIRST), ("second", SECOND)])
    assert [owner(FILE, line) for line in (1, 2, 3, 4)] == [None, "first", "second", None]


def test_lines_that_moved_since_the_patch_was_written_are_found(tree):
    sources = tree({FILE: "zero\nzero\none\ntwo, mended\nbetween\nthree\n"}, "tree")
    assert [owner_lookup(sources, [("first", FIRST)])(FILE, line) for line in (3, 4, 5, 6)] == [
        None,
        "first",
        "first",
        None,
    ]


def test_another_tree_is_refused_by_patch_and_line(tree):
    sources = tree({FILE: "one\ntwo\nthree\n"}, "tree")
    with pytest.raises(PatchError, match="not the series applied") as error:
        owner_lookup(sources, [("first", FIRST)])
    assert "first" in error.value.why


def test_a_series_that_names_no_patch_is_refused(tmp_path):
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "s").write_text("# comment\nthere # why\nabsent\n")
    (tmp_path / "there.patch").write_text(FIRST)
    with pytest.raises(ProblemsError, match="no patch 'absent'"):
        read_series(tmp_path, "s", "0.3.0")
    (tmp_path / "absent.patch").write_text(SECOND)
    assert [name for name, _ in read_series(tmp_path, "s", "0.3.0")] == ["there", "absent"]
    with pytest.raises(PatchError, match="no such series"):
        read_series(tmp_path, "other", "0.3.0")


def test_a_variant_owns_the_lines_of_its_release(tmp_path):
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "s").write_text("one\n")
    (tmp_path / "one.patch").write_text(FIRST)
    (tmp_path / "one@0.4.0.1.patch").write_text(FIRST.replace("two, mended", "two, mended anew"))
    for version, name in (
        ("0.3.0", "one"),
        ("0.4.0.1", "one@0.4.0.1"),
        ("0.4.0.1+stack", "one@0.4.0.1"),
        ("0.4.0", "one@0.4.0.1"),
        ("unknown", "one"),
    ):
        assert [found for found, _ in read_series(tmp_path, "s", version)] == [name], version
