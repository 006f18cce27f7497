import pytest
from fake_releases import GENERATOR, RELEASES, diff, edit, mail
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftkiln.errors import PatchError, ProblemsError
from draftkiln.patches import queue

FIRST = ("check(tokenizer)", "check(tokenizer, True)")


def problems(call):
    with pytest.raises(ProblemsError) as caught:
        call()
    return [str(problem) for problem in caught.value.problems]


def test_a_series_keeps_its_order_and_its_comments_are_no_slugs(project):
    for name in ("zeta", "alpha"):
        project.patch(name, FIRST)
    project.series("s", "# why this order", "zeta  # first", "", "alpha")
    assert [patch.slug for patch in queue.load_series(project.queue, "s").patches("1.0")] == ["zeta", "alpha"]


def test_a_variant_serves_its_release_and_the_plain_text_all_others(project):
    project.patch("fix", FIRST)
    project.patch("fix@1.1", FIRST, base="1.1")
    project.series("s", "fix")
    series = queue.load_series(project.queue, "s")
    assert series.patches("1.0")[0].name == "fix"
    assert series.patches("1.1")[0].name == "fix@1.1"
    assert series.patches("9")[0].name == "fix"


def test_a_slug_with_variants_only_names_the_releases_it_is_for(project):
    project.patch("fix@1.1", FIRST, base="1.1")
    project.series("s", "fix")
    found = problems(lambda: queue.load_series(project.queue, "s").patches("1.0"))
    assert "fix has no text for speculators 1.0" in found[0]
    assert "only for 1.1" in found[0]


def test_all_faults_of_pool_and_series_come_at_once(project):
    project.patch("good", FIRST)
    project.patch("0001-numbered", FIRST)
    project.write_patch(
        "outside",
        mail() + "diff --git a/vllm/x.py b/vllm/x.py\n--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n",
    )
    project.write_patch("empty", mail())
    project.series("s", "good", "missing", "outside", "good")
    found = "\n".join(problems(lambda: queue.load(project.queue)))
    assert "0001-numbered.patch:1: '0001-numbered' is no slug" in found
    assert "vllm/x.py is outside speculators/" in found
    assert "empty.patch:1: no diff" in found
    assert "series/s:2: no patch 'missing'" in found
    assert "series/s:4: good stands twice" in found
    # A patch with a fault of its own is not also called missing.
    assert "no patch 'outside'" not in found


def test_a_series_is_read_although_a_patch_outside_it_is_broken(project):
    project.patch("good", FIRST)
    project.write_patch("bad", "nothing")
    project.series("s", "good")
    assert len(queue.load_series(project.queue, "s").entries) == 1
    problems(lambda: queue.load(project.queue))


def test_an_unknown_series_lists_those_there(project):
    project.series("known")
    with pytest.raises(PatchError, match="no such series") as caught:
        queue.load_series(project.queue, "other")
    assert "known" in caught.value.why


def test_case_40_a_crlf_copy_reads_as_the_lf_text(project):
    project.patch("fix", FIRST)
    path = project.queue / "fix.patch"
    text = path.read_text()
    path.write_bytes(text.replace("\n", "\r\n").encode())
    found = queue.read_patch(path)
    assert found.has_crlf
    assert found.text == text


def test_case_40_mixed_line_ends_are_refused_by_line(project):
    text = (
        mail() + diff(RELEASES["1.0"], {**RELEASES["1.0"], GENERATOR: edit(RELEASES["1.0"][GENERATOR], FIRST)})
    ).encode()
    (project.queue / "fix.patch").write_bytes(
        text.replace(b"Subject: Pass the value\n", b"Subject: Pass the value\r\n")
    )
    assert any(
        "fix.patch:3: carriage return" in what
        for what in problems(lambda: queue.read_patch(project.queue / "fix.patch"))
    )


@pytest.mark.parametrize("cut", [1, 5])
def test_a_cut_patch_is_refused(project, cut):
    project.patch("fix", FIRST)
    path = project.queue / "fix.patch"
    path.write_bytes(path.read_bytes()[:-cut])
    assert any("no newline at the end" in what for what in problems(lambda: queue.read_patch(path)))


_SLUGS = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,4}){0,2}", fullmatch=True)
_COMMENTS = st.text(st.characters(blacklist_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=20).map(
    lambda text: f"#{text}"
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_SLUGS, unique=True, max_size=6), st.data())
def test_any_series_file_gives_its_slugs_in_order(project, slugs, data):
    for old in project.queue.glob("*.patch"):
        old.unlink()
    lines = []
    for slug in slugs:
        project.patch(slug, FIRST)
        lines += data.draw(st.lists(st.one_of(_COMMENTS, st.just(""), st.just("  ")), max_size=2))
        lines.append(
            data.draw(st.sampled_from(["", " "])) + slug + data.draw(st.sampled_from(["", "  # why", "\t# why"]))
        )
    project.series("s", *lines)
    assert [entry.slug for entry in queue.load_series(project.queue, "s").entries] == slugs


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_any_text_as_a_series_is_read_or_refused_with_file_and_line(project, text):
    (project.queue / "series" / "s").write_bytes(text.encode(errors="replace"))
    try:
        queue.load_series(project.queue, "s")
    except ProblemsError as error:
        assert all(f"{project.queue / 'series' / 's'}:" in problem.what for problem in error.problems)
