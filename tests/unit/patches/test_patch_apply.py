import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_releases import GENERATOR, RELEASES, WORKER, diff, edit, mail

from draftkiln.errors import PatchError, ProblemsError
from draftkiln.patches import apply, folder, queue
from draftkiln.patches.apply import Fit
from draftkiln.patches.folder import Outcome

TOKENIZER = ("check(tokenizer)", "check(tokenizer, trust=True)")
LOOP = ("    found.append(value)", "    found.append(finish(value))")


def files(version):
    return {name: text.encode() for name, text in RELEASES[version].items()}


def unpack(where, version="1.0"):
    for name, data in files(version).items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_bytes(data)
    (where / f"speculators-{version}.dist-info").mkdir()
    return where


def contents(where):
    return {path.relative_to(where): path.read_bytes() for path in sorted(where.rglob("*")) if path.is_file()}


def patches(project, *slugs, version="1.0"):
    project.series("s", *slugs)
    return queue.load_series(project.queue, "s").patches(version)


def refusals(call):
    with pytest.raises(ProblemsError) as caught:
        call()
    return [str(problem) for problem in caught.value.problems]


def test_a_series_changes_exactly_the_files_it_names(project):
    after = project.patch("fix", TOKENIZER, LOOP)
    done = apply.apply_series(files("1.0"), "1.0", patches(project, "fix"))
    assert done.changed == {GENERATOR: after[GENERATOR].encode()}
    assert done.steps[0].fit is Fit.CLEAN
    assert done.tree == apply.tree_hash({name: text.encode() for name, text in after.items()})
    assert done.base_tree == apply.tree_hash(files("1.0"))


def test_files_can_appear_and_go(project):
    new = "speculators/data_generation/new.py"
    project.write_patch("move", mail() + diff(RELEASES["1.0"], {GENERATOR: RELEASES["1.0"][GENERATOR], new: "y = 2\n"}))
    done = apply.apply_series(files("1.0"), "1.0", patches(project, "move"))
    assert done.changed == {new: b"y = 2\n", WORKER: None}


def test_case_1_a_removed_target_is_told_with_patch_and_both_releases(project):
    project.patch("fix", TOKENIZER)
    found = refusals(lambda: apply.apply_series(files("2.0"), "2.0", patches(project, "fix")))
    assert "fix.patch: does not apply to speculators 2.0" in found[0]
    assert f"{GENERATOR} is not in speculators 2.0: target removed upstream" in found[0]
    assert "made for speculators 1.0" in found[0]


def test_case_12_a_patch_that_half_fits_changes_nothing(project, tmp_path):
    project.patch("fix", TOKENIZER, LOOP)
    where = unpack(tmp_path / "unpacked", "1.1")
    (where / GENERATOR).write_text(
        edit((where / GENERATOR).read_text(), ("    found.append(value)", "    found.insert(0, value)"))
    )
    before = contents(where)
    found = refusals(lambda: folder.apply_to_folder(where, patches(project, "fix")))
    assert contents(where) == before
    assert "fix.patch: does not apply to speculators 1.1" in found[0]
    assert f"hunk 2 of {GENERATOR}" in found[0]
    assert "hunk 1" not in found[0]


def test_case_12_a_shifted_hunk_is_taken_only_where_a_hash_says_it_is_right(project, tmp_path):
    project.patch("fix", TOKENIZER)
    where = unpack(tmp_path / "unpacked", "1.1")
    before = contents(where)
    series = patches(project, "fix")
    with pytest.raises(PatchError, match="1 hunks fit at other lines") as caught:
        folder.apply_to_folder(where, series)
    assert f"fix: {GENERATOR} hunk 1: +4 lines" in caught.value.why
    with pytest.raises(PatchError, match="the lock says"):
        folder.apply_to_folder(where, series, expected_tree="0" * 40)
    assert contents(where) == before
    right = apply.apply_series(files("1.1"), "1.1", series)
    assert right.steps[0].fit is Fit.OFFSET
    result = folder.apply_to_folder(where, series, expected_tree=right.tree)
    assert (result.outcome, result.tree) == (Outcome.APPLIED, right.tree)
    assert result.offsets


def test_case_12_drifted_context_is_refused_and_not_fuzzed(project):
    project.patch("fix", TOKENIZER)
    drifted = files("1.0")
    # GNU patch takes this with fuzz 1.
    drifted[GENERATOR] = drifted[GENERATOR].replace(b"return tokenizer", b"return wrap(tokenizer)")
    assert (
        f"hunk 1 of {GENERATOR} finds no place"
        in refusals(
            lambda: apply.apply_series(drifted, "1.0", patches(project, "fix")),
        )[0]
    )


def test_case_13_clean_patched_and_conflicting_are_told_apart(project, tmp_path):
    project.patch("fix", TOKENIZER, LOOP)
    series = patches(project, "fix")
    where = unpack(tmp_path / "unpacked")
    first = folder.apply_to_folder(where, series)
    after = contents(where)
    second = folder.apply_to_folder(where, series)
    assert (first.outcome, second.outcome) == (Outcome.APPLIED, Outcome.ALREADY_APPLIED)
    assert first.tree == second.tree
    assert contents(where) == after
    (where / GENERATOR).write_text(edit((where / GENERATOR).read_text(), ("trust=True", "trust=False")))
    refusals(lambda: folder.apply_to_folder(where, series))


def test_a_half_applied_folder_is_refused_and_the_patch_that_is_in_is_named(project, tmp_path):
    project.patch("one", TOKENIZER)
    project.patch("two", LOOP)
    where = unpack(tmp_path / "unpacked")
    folder.apply_to_folder(where, patches(project, "one"))
    before = contents(where)
    found = refusals(lambda: folder.apply_to_folder(where, patches(project, "one", "two")))
    assert len(found) == 1
    assert "at least 1 of 2 patches are in" in found[0]
    assert "in there already: one.patch" in found[0]
    assert contents(where) == before


def test_case_39_inside_another_repository_the_file_is_changed(project, tmp_path, monkeypatch):
    repo = tmp_path / "repo"
    where = unpack(repo / "venv" / "site-packages")
    (repo / "docs").mkdir()
    subprocess.run(["git", "init", "--quiet", str(repo)], check=True)
    project.patch("fix", TOKENIZER)
    series = patches(project, "fix")
    monkeypatch.chdir(repo / "docs")
    monkeypatch.setenv("TMPDIR", str(repo / "docs"))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert folder.apply_to_folder(Path("../venv/site-packages"), series).outcome is Outcome.APPLIED
    assert b"trust=True" in (where / GENERATOR).read_bytes()
    status = subprocess.run(["git", "status", "--porcelain"], cwd=repo, capture_output=True, text=True, check=True)
    assert status.stdout == "?? venv/\n"


def test_case_39_git_s_variables_of_a_hook_do_not_reach_it(project, tmp_path, monkeypatch):
    other = tmp_path / "other"
    subprocess.run(["git", "init", "--quiet", str(other)], check=True)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    before = contents(other)
    project.patch("fix", TOKENIZER)
    assert apply.apply_series(files("1.0"), "1.0", patches(project, "fix")).changed
    assert contents(other) == before


def test_the_user_s_git_settings_do_not_change_the_result(project, tmp_path, monkeypatch):
    project.patch("fix", TOKENIZER)
    series = patches(project, "fix")
    plain = apply.apply_series(files("1.0"), "1.0", series)
    settings = tmp_path / "home"
    settings.mkdir()
    (settings / ".gitconfig").write_text(
        "[core]\nautocrlf = true\nhooksPath = /nonexistent\n[commit]\ngpgSign = true\n"
        "[user]\nname = X\n[am]\nkeepcr = true\n"
        "[diff]\nnoprefix = true\ncontext = 1\n[format]\nsignature = mine\nattach = true\n"
    )
    monkeypatch.setenv("HOME", str(settings))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    changed = apply.apply_series(files("1.0"), "1.0", series)
    assert (changed.tree, changed.steps[0].commit) == (plain.tree, plain.steps[0].commit)


def test_case_40_a_crlf_copy_of_a_patch_gives_the_same_bytes(project):
    after = project.patch("fix", TOKENIZER)
    path = project.queue / "fix.patch"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    done = apply.apply_series(files("1.0"), "1.0", patches(project, "fix"))
    assert done.changed == {GENERATOR: after[GENERATOR].encode()}
    assert b"\r" not in done.changed[GENERATOR]


def test_case_40_a_crlf_target_is_refused_by_name(project, tmp_path):
    project.patch("fix", TOKENIZER)
    where = unpack(tmp_path / "unpacked")
    (where / GENERATOR).write_bytes((where / GENERATOR).read_bytes().replace(b"\n", b"\r\n"))
    before = contents(where)
    found = refusals(lambda: folder.apply_to_folder(where, patches(project, "fix")))
    assert f"{GENERATOR}: CRLF line ends" in found[0]
    assert contents(where) == before


def test_case_41_patches_go_in_as_declared_and_a_missing_one_is_loud(project):
    first = project.patch("zz-first", ("check(tokenizer)", "check(tokenizer, 1)"))
    second = project.patch("b-second", ("check(tokenizer, 1)", "check(tokenizer, 2)"), before=first)
    third = project.patch("a10-third", ("check(tokenizer, 2)", "check(tokenizer, 3)"), before=second)
    order = ("zz-first", "b-second", "a10-third")
    assert apply.apply_series(files("1.0"), "1.0", patches(project, *order)).changed == {
        GENERATOR: third[GENERATOR].encode()
    }
    found = refusals(lambda: apply.apply_series(files("1.0"), "1.0", patches(project, *order[1:])))
    assert "b-second.patch" in found[0]
    assert "earlier patch" in found[1]
    refusals(lambda: apply.apply_series(files("1.0"), "1.0", patches(project, *sorted(order))))


def test_an_installed_environment_is_not_edited(project, tmp_path):
    project.patch("fix", TOKENIZER)
    where = unpack(tmp_path / "site-packages")
    (where / "speculators-1.0.dist-info" / "INSTALLER").write_text("uv\n")
    before = contents(where)
    with pytest.raises(PatchError, match="installed environment"):
        folder.apply_to_folder(where, patches(project, "fix"))
    assert contents(where) == before


def test_record_stays_true_in_a_patched_folder(project, tmp_path):
    from draftkiln.patches import record

    project.patch("fix", TOKENIZER)
    where = unpack(tmp_path / "unpacked")
    path = where / "speculators-1.0.dist-info" / "RECORD"
    path.write_bytes(record.written(files("1.0"), "speculators-1.0.dist-info/RECORD"))
    folder.apply_to_folder(where, patches(project, "fix"))
    now = {name: (where / name).read_bytes() for name in files("1.0")}
    assert path.read_bytes() == record.written(now, "speculators-1.0.dist-info/RECORD")


def test_a_write_that_fails_halfway_is_taken_back(project, tmp_path, monkeypatch):
    both = {
        GENERATOR: edit(RELEASES["1.0"][GENERATOR], TOKENIZER),
        WORKER: edit(RELEASES["1.0"][WORKER], ("return values", "return 1")),
    }
    project.write_patch("fix", mail() + diff(RELEASES["1.0"], both))
    where = unpack(tmp_path / "unpacked")
    before = contents(where)
    series = patches(project, "fix")
    real = folder.durable.write_bytes

    def full(path, data):
        if path.name == Path(WORKER).name and b"return 1" in data:
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(folder.durable, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        folder.apply_to_folder(where, series)
    assert contents(where) == before


def test_compiled_files_do_not_count(project, tmp_path):
    project.patch("fix", TOKENIZER)
    where = unpack(tmp_path / "unpacked")
    (where / "speculators" / "__pycache__").mkdir()
    (where / "speculators" / "__pycache__" / "x.pyc").write_bytes(b"x")
    done = apply.apply_series(files("1.0"), "1.0", patches(project, "fix"))
    assert folder.apply_to_folder(where, patches(project, "fix")).tree == done.tree


@pytest.mark.parametrize("stdin", ["closed", "never ends"])
def test_it_never_waits_for_stdin(project, tmp_path, stdin):
    project.patch("fix", TOKENIZER)
    project.stack("s", "2.0", "s")
    project.series("s", "fix")
    command = [sys.executable, "-m", "draftkiln", "patches", "apply", "--stack", "s", "--out", str(tmp_path / "out")]
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            command,
            stdin=reading if stdin == "never ends" else subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert done.returncode == 5
    assert "target removed upstream" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
