import pytest

from draftkiln.errors import PatchError
from draftkiln.seams.owners import owner_lookup, read_series

FILE = "speculators/data_generation/a.py"
FIRST = f"""Subject: first

---
--- a/{FILE}
+++ b/{FILE}
@@ -1,3 +1,4 @@
 one
-two
+two, mended
+between
 three
"""
SECOND = f"""Subject: second

---
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
    with pytest.raises(PatchError, match="names absent"):
        read_series(tmp_path, "s")
    (tmp_path / "absent.patch").write_text(SECOND)
    assert [slug for slug, _ in read_series(tmp_path, "s")] == ["there", "absent"]
    with pytest.raises(PatchError, match="no series other"):
        read_series(tmp_path, "other")
