import json
import re
from pathlib import Path

import pytest
from fake_releases import GENERATOR, RELEASES, WORKER, diff, edit, mail

from draftkiln.cli import main
from draftkiln.patches import queue

FIRST = ("check(tokenizer)", "check(tokenizer, 1)")
LOOP = ("    found.append(value)", "    found.append(finish(value))")
STEP = ("second = first * 5", "second = first * 55")
RETURN = ("    return values", "    return list(values)")


@pytest.fixture
def moving(project, monkeypatch):
    """A stack on 1.0 with three patches, exported, and a way to release what they move to."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    first = project.patch("first", FIRST)
    second = project.patch("step", STEP, before=first)
    project.patch("loop", LOOP, before=second)
    project.series("s", "# in this order", "first", "step  # second", "loop")
    project.stack("a", "1.0", "s")
    assert main(["patches", "export"]) == 0
    return project


def move(project, files, capsys, *more, to="3.0"):
    """Rebase onto a release with `files`; exit code and state per patch."""
    project.release(to, files)
    before = project.state()
    capsys.readouterr()
    wheel = ["--wheel", str(project.wheel(to))]
    code = main(["patches", "rebase", "--to", f"speculators=={to}", "--json", *wheel, *more])
    told = json.loads(capsys.readouterr().out)
    if code:
        assert project.state() == before
        assert told["changed"] == []
    return code, {one["slug"]: (one["state"], one["detail"]) for one in told["patches"]}, told


def base(*pairs, worker=()):
    text = edit(RELEASES["1.0"][GENERATOR], *pairs)
    return {GENERATOR: text, WORKER: edit(RELEASES["1.0"][WORKER], *worker)}


def states(found):
    return {slug: state for slug, (state, _) in found.items()}


def applied(project, version):
    """What the series makes of a release now."""
    project.stack("a", version, "s")
    from draftkiln.patches import apply, wheel

    pristine = wheel.read(project.wheel(version))
    return apply.apply_series(pristine.package, version, queue.load_series(project.queue, "s").patches(version))


def test_an_unchanged_release_is_clean_and_only_the_base_moves(moving, capsys):
    before = {path.name: path.read_text() for path in moving.queue.glob("*.patch")}
    code, found, _ = move(moving, base(), capsys)
    assert code == 0
    assert states(found) == {"first": "clean", "step": "clean", "loop": "clean"}
    for path in moving.queue.glob("*.patch"):
        assert path.read_text() == before[path.name].replace("Base: speculators==1.0", "Base: speculators==3.0")
    assert [step.fit for step in applied(moving, "3.0").steps] == ["clean"] * 3


def test_shifted_lines_are_an_offset_and_the_new_text_fits_as_written(moving, capsys):
    code, found, _ = move(moving, base(("import module_3\n", "import module_3\nimport more\n")), capsys)
    assert code == 0
    assert states(found) == {"first": "offset", "step": "offset", "loop": "offset"}
    assert found["first"][1] == f"{GENERATOR} hunk 1: +1 lines"
    assert [step.fit for step in applied(moving, "3.0").steps] == ["clean"] * 3


def test_a_changed_neighbour_line_is_merged_three_way(moving, capsys):
    # The line two above the patched one: context, so a plain apply refuses it.
    code, found, _ = move(moving, base(("def load(values)", "def load(values, more)")), capsys)
    assert code == 0
    assert states(found) == {"first": "merged-3way", "step": "clean", "loop": "clean"}
    done = applied(moving, "3.0")
    assert (
        b"def load(values, more):\n    tokenizer = open_tokenizer(values)\n    check(tokenizer, 1)"
        in done.changed[GENERATOR]
    )


def test_a_patch_that_upstream_has_leaves_series_and_pool(moving, capsys):
    code, found, _ = move(moving, base(STEP), capsys)
    assert code == 0
    assert states(found) == {"first": "clean", "step": "upstreamed", "loop": "clean"}
    assert not (moving.queue / "step.patch").exists()
    assert (moving.queue / "series" / "s").read_text() == "# in this order\nfirst\nloop\n"


def test_a_patch_that_upstream_has_among_other_changes_is_found_by_the_empty_merge(moving, capsys):
    code, found, _ = move(moving, base(FIRST, ("def load(values)", "def load(values, more)")), capsys)
    assert code == 0
    assert found["first"] == ("upstreamed", "all of it, with other lines around it")
    assert not (moving.queue / "first.patch").exists()


def test_a_patch_with_one_hunk_upstream_is_exported_without_it(project, capsys):
    project.patch("both", FIRST, LOOP)
    project.series("s", "both")
    project.stack("a", "1.0", "s")
    main(["patches", "export"])
    code, found, _ = move(project, base(FIRST), capsys)
    assert code == 0
    assert found["both"] == ("upstreamed", f"hunk 1 of {GENERATOR}; the rest stays")
    text = (project.queue / "both.patch").read_text()
    assert "finish(value)" in text
    assert "tokenizer, 1" not in text
    assert applied(project, "3.0").changed == {GENERATOR: edit(RELEASES["1.0"][GENERATOR], FIRST, LOOP).encode()}


def test_case_1_a_removed_target_is_no_conflict_and_writes_nothing(moving, capsys):
    code, found, told = move(moving, {"speculators/other.py": "x = 1\n"}, capsys)
    assert code == 5
    assert states(found) == dict.fromkeys(("first", "step", "loop"), "target-removed")
    assert GENERATOR in found["first"][1]
    assert told["kept"] is None
    main(["patches", "rebase", "--to", "speculators==3.0", "--wheel", str(moving.wheel("3.0"))])
    error = capsys.readouterr().err
    assert "target removed upstream: speculators 3.0 has no file for first, step, loop" in error
    assert "the patches are for speculators 1.0" in error


CONFLICTING = (("check(tokenizer)", "verify(tokenizer)"), ("    found.append(value)", "    found.insert(0, value)"))


def resolve(kept, slug):
    """Do what the message says, as a person would."""
    from pathlib import Path

    path = Path(kept) / GENERATOR
    text = path.read_text()
    assert "<<<<<<< " in text
    theirs = re.sub(r"<<<<<<< .*?\n(.*?)=======\n(.*?)>>>>>>> .*?\n", r"\2", text, flags=re.DOTALL)
    path.write_text(theirs)
    return slug


def test_a_conflict_keeps_the_tree_and_goes_on_patch_by_patch(moving, capsys):
    before = moving.state()
    code, found, told = move(moving, base(*CONFLICTING), capsys)
    assert code == 5
    # Later patches are tried too, so that the whole job is seen at once.
    assert states(found) == {"first": "conflict", "step": "clean", "loop": "conflict"}
    assert main(["patches", "rebase", "--continue"]) == 5
    assert f"conflict markers in {GENERATOR}" in capsys.readouterr().err
    resolve(told["kept"], "first")
    backup = Path(told["kept"], GENERATOR + "~")
    backup.write_text("an editor's copy")
    assert main(["patches", "rebase", "--continue"]) == 5
    assert f"in neither release: {GENERATOR}~" in capsys.readouterr().err
    backup.unlink()
    assert main(["patches", "rebase", "--continue", "--json"]) == 5
    told = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in told["patches"]] == ["merged-3way", "clean", "conflict"]
    assert moving.state() == before
    resolve(told["kept"], "loop")
    assert main(["patches", "rebase", "--continue"]) == 0
    printed = capsys.readouterr().out
    assert "set speculators {version: 3.0, series: s} in stack.yaml of a" in printed
    wanted = edit(
        base(*CONFLICTING)[GENERATOR],
        ("verify(tokenizer)", "check(tokenizer, 1)"),
        STEP,
        ("found.insert(0, value)", "found.append(finish(value))"),
    )
    assert applied(moving, "3.0").changed == {GENERATOR: wanted.encode()}
    assert main(["patches", "rebase", "--continue"]) == 5
    assert "no rebases are open" in capsys.readouterr().err


def test_a_conflict_names_the_two_commands_and_abort_forgets_it(moving, capsys):
    moving.release("3.0", base(*CONFLICTING))
    command = ["patches", "rebase", "--to", "speculators==3.0", "--wheel", str(moving.wheel("3.0"))]
    before = moving.state()
    assert main(command) == 5
    error = capsys.readouterr().err
    assert f"first: conflict in {GENERATOR}; nothing in the queue was changed" in error
    assert "draftkiln patches rebase --continue --stack a" in error
    assert "draftkiln patches rebase --abort --stack a" in error
    assert main(command) == 5
    assert "a rebase of s is open" in capsys.readouterr().err
    assert main(["patches", "rebase", "--abort"]) == 0
    assert moving.state() == before
    assert main(["patches", "rebase", "--abort"]) == 5


def test_a_conflict_resolved_to_what_upstream_has_drops_the_patch(moving, capsys):
    _, _, told = move(moving, base(CONFLICTING[0]), capsys)
    files = base(CONFLICTING[0])
    (Path(told["kept"]) / GENERATOR).write_text(files[GENERATOR])
    assert main(["patches", "rebase", "--continue", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["state"] for one in told["patches"]] == ["upstreamed", "clean", "clean"]
    assert not (moving.queue / "first.patch").exists()


def test_a_queue_that_changed_during_a_conflict_is_refused(moving, capsys):
    _, _, told = move(moving, base(*CONFLICTING), capsys)
    resolve(told["kept"], "first")
    moving.series("s", "first", "loop", "step")
    assert main(["patches", "rebase", "--continue"]) == 5
    assert "the queue changed since" in capsys.readouterr().err


def test_a_text_that_another_stack_needs_stays_and_the_moved_one_is_a_variant(moving, capsys):
    before = moving.state()
    code, found, _ = move(moving, base(("def load(values)", "def load(values, more)"), STEP), capsys, "--as", "s3")
    assert code == 0
    assert states(found) == {"first": "merged-3way", "step": "upstreamed", "loop": "clean"}
    after = moving.state()
    assert {path: after[path] for path in before} == before
    assert {path.name for path in after.keys() - before.keys()} == {"first@3.0.patch", "s3"}
    assert (moving.queue / "series" / "s3").read_text() == "# in this order\nfirst\nloop\n"
    moving.stack("b", "3.0", "s3")
    assert main(["patches", "export", "--dry-run"]) == 0
    assert [patch.name for patch in queue.load(moving.queue).series["s3"].patches("3.0")] == ["first@3.0", "loop"]


def test_several_series_need_a_name(moving, capsys):
    moving.series("t", "first")
    moving.stack("b", "1.0", "t")
    assert main(["patches", "rebase", "--to", "speculators==1.1"]) == 2
    assert "--stack" in capsys.readouterr().err
    assert main(["patches", "rebase"]) == 2
    assert "--to speculators==VERSION" in capsys.readouterr().err


def test_new_hands_a_tree_out_and_takes_it_in(moving, tmp_path, capsys):
    tree = tmp_path / "edit"
    command = ["patches", "new", "worker-list", "--stack", "a", "--tree", str(tree)]
    assert main(command) == 0
    assert "check(tokenizer, 1)" in (tree / GENERATOR).read_text()
    words = [
        "--subject",
        "Return a list",
        "--why",
        "Views change later.",
        "--check",
        "tests/test_it.py::test_it",
        "--author",
        "Ä B <a@b.c>",
    ]
    before = moving.state()
    assert main([*command, *words]) == 5
    assert "nothing to make a patch of" in capsys.readouterr().err
    (tree / WORKER).write_text(edit((tree / WORKER).read_text(), RETURN))
    assert main(command) == 2
    assert "--subject, --why, --check missing" in capsys.readouterr().err
    assert main([*command, *words[:-3], "some test", *words[-2:]]) == 5
    assert "names no test" in capsys.readouterr().err
    assert moving.state() == before
    assert main([*command, *words, "--needs-vllm", ">=0.16 [views]"]) == 0
    found = queue.load(moving.queue)
    patch = found.series["s"].patches("1.0")[-1]
    assert (patch.slug, patch.header.subject, patch.header.author) == ("worker-list", "Return a list", "Ä B <a@b.c>")
    assert patch.header.base == "1.0"
    assert patch.files == (WORKER,)
    # What was written is what export writes.
    assert main(["patches", "export", "--dry-run"]) == 0
    assert main([*command, *words]) == 5
    assert "is there already" in capsys.readouterr().err


def test_drop_takes_out_what_upstream_has_and_refuses_what_it_has_not(project, capsys):
    project.release("1.2", base(FIRST))
    project.patch("first", FIRST)
    project.patch("loop", LOOP, base="1.0")
    project.series("s", "loop")
    project.stack("a", "1.0", "s")
    project.series("t", "loop  # here too")
    project.stack("b", "1.2", "t")
    before = project.state()
    assert main(["patches", "drop", "loop"]) == 5
    error = capsys.readouterr().err
    assert "speculators 1.0 of stack a does not have this change" in error
    assert "speculators 1.2 of stack b does not have this change" in error
    assert project.state() == before
    assert main(["patches", "drop", "loop", "--force"]) == 0
    assert {path.name for path in project.state()} == {"first.patch", "s", "t"}
    assert main(["patches", "drop", "loop"]) == 5
    assert "no patch 'loop'" in capsys.readouterr().err


def test_drop_needs_no_force_where_the_release_has_the_change(project):
    files = {GENERATOR: edit(RELEASES["1.0"][GENERATOR], FIRST)}
    project.release("1.2", files)
    project.write_patch("first", mail() + diff({GENERATOR: RELEASES["1.0"][GENERATOR]}, files))
    project.series("s", "first")
    project.stack("a", "1.2", "s")
    assert main(["patches", "drop", "first"]) == 0
    assert [path.name for path in project.state()] == ["s"]


def test_a_forced_drop_that_breaks_the_rest_changes_nothing(moving, capsys):
    after = moving.patch("on-top", ("check(tokenizer, 1)", "check(tokenizer, 2)"), before=base(FIRST, STEP, LOOP))
    assert after
    moving.series("s", "first", "step", "loop", "on-top")
    before = moving.state()
    assert main(["patches", "drop", "first", "--force"]) == 5
    assert moving.state() == before
    assert "first: 1 patches of stack a do not apply without it" in capsys.readouterr().err


def test_a_move_to_the_same_release_is_refused(moving, capsys):
    assert main(["patches", "rebase", "--to", "speculators==1.0"]) == 5
    assert "s is for speculators 1.0 already" in capsys.readouterr().err


def test_copies_that_an_editor_left_do_not_get_into_a_patch(moving, tmp_path, capsys):
    tree = tmp_path / "tree"
    start = ["patches", "new", "more", "--stack", "a", "--tree", str(tree)]
    assert main(start) == 0
    worker = tree / WORKER
    worker.write_text(edit(worker.read_text(), RETURN))
    worker.with_name("worker.py~").write_text("old")
    before = moving.state()
    end = ["--subject", "Copy values", "--why", "They change.", "--check", "tests/test_it.py::test_it"]
    assert main([*start, *end, "--author", "A B <a@b.example>"]) == 5
    assert "worker.py~" in capsys.readouterr().err
    assert moving.state() == before


def test_a_name_that_is_no_slug_is_refused_before_a_tree_is_handed_out(moving, tmp_path, capsys):
    assert main(["patches", "new", "0001_more", "--stack", "a", "--tree", str(tmp_path / "tree")]) == 2
    assert "'0001_more' cannot name a patch" in capsys.readouterr().err
    assert not (tmp_path / "tree").exists()


def test_a_move_to_a_hotfix_keeps_the_texts_of_its_release(moving, capsys):
    project_files = {path.name for path in moving.queue.glob("*.patch")}
    variant = moving.queue / "loop@1.0.patch"
    (moving.queue / "loop.patch").rename(variant)
    code, found, told = move(moving, base(), capsys, "--as", "t", to="1.0.0.2")
    assert code == 0
    assert states(found) == {"first": "clean", "step": "clean", "loop": "clean"}
    assert told["changed"] == [str(moving.queue / "series" / "t")]
    assert {path.name for path in moving.queue.glob("*.patch")} == (project_files - {"loop.patch"}) | {variant.name}
