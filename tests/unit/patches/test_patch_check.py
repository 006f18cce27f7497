import json
import shutil
import zipfile

import pytest
from fake_releases import GENERATOR, RELEASES, WORKER, make_project

from draftkiln.cli import main
from draftkiln.patches import queue, uses, wheel
from draftkiln.patches.check import check
from draftkiln.seams.extract import ENTRIES, files_sha256
from draftkiln.seams.model import SeamList, to_json

EDIT = ("check(tokenizer)", "check(tokenizer, 1)")
LOOP = ("    found.append(value)", "    found.append(finish(value))")


def lock(project, stack, version, series):
    built = wheel.build(project.wheel(version), queue.load_series(project.queue, series), project.root.parent / "dist")
    project.stack(
        stack,
        version,
        series,
        patched_tree=built.tree,
        patched_wheel_sha256=built.sha256,
        patched_version=built.version,
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two stacks on two releases that share a patch, everything right; made once."""
    project = make_project(tmp_path_factory.mktemp("made"), RELEASES)
    first = project.patch("one", EDIT)
    project.patch("two", LOOP, before=first, Upstream_Status="Submitted [https://example.org/1]")
    project.series("s10", "one", "two")
    project.series("s11", "two", "one")
    project.stack("a", "1.0", "s10")
    project.stack("b", "1.1", "s11")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTKILN_HOME", str(project.root))
        patch.setenv("DRAFTKILN_CACHE", str(project.cache))
        assert main(["patches", "export"]) == 0
    lock(project, "a", "1.0", "s10")
    lock(project, "b", "1.1", "s11")
    return project


@pytest.fixture
def good(made, project):
    shutil.copytree(made.root, project.root, dirs_exist_ok=True)
    return project


def findings(project):
    return [problem.what for problem in check(project.queue, project.root).problems]


def test_a_right_queue_has_no_findings(good, capsys):
    assert findings(good) == []
    assert main(["patches", "check"]) == 0
    printed = capsys.readouterr().out
    assert "a: 2 patches on speculators 1.0" in printed
    assert "b: 2 patches on speculators 1.1" in printed
    assert "2 hunks at other lines" in printed


def test_an_edit_by_hand_is_found_and_export_mends_it(good):
    path = good.queue / "one.patch"
    before = path.read_text()
    path.write_text(before.replace("index ", "index 0"))
    assert findings(good) == [f"{path}: not as git writes it on speculators 1.0, in s10"]
    path.write_bytes(before.replace("\n", "\r\n").encode())
    assert findings(good) == [f"{path}: not as git writes it on speculators 1.0, in s10"]
    assert main(["patches", "export", "--dry-run"]) == 5
    assert main(["patches", "export"]) == 0
    assert path.read_text() == before
    assert findings(good) == []


def test_case_40_a_changed_patch_no_longer_matches_the_lock(good):
    path = good.queue / "one.patch"
    path.write_text(path.read_text().replace("+    check(tokenizer, 1)", "+    check(tokenizer, 9)"))
    main(["patches", "export"])
    assert findings(good) == [
        "stack a: patched tree is not the locked one",
        "stack a: patched wheel is not the locked one",
        "stack b: patched tree is not the locked one",
        "stack b: patched wheel is not the locked one",
    ]


def test_every_finding_comes_in_one_run(good, capsys):
    (good.root / "tests" / "test_it.py").write_text("class TestIt:\n    def test_it(self):\n        pass\n")
    good.patch("lonely", EDIT)
    good.series("unused", "one")
    good.series("s10", "two", "one", "nothing")
    (good.root / "containers" / "stacks" / "b" / "stack.lock.yaml").unlink()
    found = findings(good)
    for words in [
        "series/s10:3: no patch 'nothing'",
        "series/unused: no stack uses this series",
        "lonely.patch: in no series",
        "one.patch: Check names no test",
        "two.patch: Check names no test",
        "stack b: the pristine wheel of speculators 1.1 is not known",
        "one.patch: not as git writes it",
    ]:
        assert any(words in what for what in found), words
    assert main(["patches", "check", "--json"]) == 5
    assert [problem["what"] for problem in json.loads(capsys.readouterr().out)["problems"]] == found
    assert main(["patches", "check"]) == 5
    assert "no stack uses this series" in capsys.readouterr().err


def test_a_stack_without_a_locked_series_is_told_so(good):
    good.stack("a", "1.0", "s10")
    assert findings(good) == ["stack a: patched tree and wheel are not locked"]


def test_a_patch_for_other_engines_is_told_per_stack(good):
    path = good.queue / "one.patch"
    path.write_text(path.read_text().replace("\nCheck:", "\nNeeds-Vllm: >=0.18,<0.20 [renamed]\nCheck:"))
    assert findings(good) == ["stack a: one is not for vLLM 0.16.0", "stack b: one is not for vLLM 0.16.0"]


def test_a_series_that_does_not_fit_names_its_stack(good):
    good.stack("b", "2.0", "s11")
    found = findings(good)
    assert [what.split(": ")[0] for what in found] == ["stack b", "stack b"]
    assert "does not apply to speculators 2.0" in found[0]


def test_a_test_in_a_class_counts_and_a_helper_does_not(good):
    (good.root / "tests" / "test_it.py").write_text(
        "class TestIt:\n    def test_it(self):\n        pass\n\n\ndef helper():\n    pass\n"
    )
    path = good.queue / "one.patch"
    path.write_text(path.read_text().replace("::test_it", "::TestIt::test_it"))
    other = good.queue / "two.patch"
    other.write_text(other.read_text().replace("::test_it", "::helper"))
    found = check(good.queue, good.root).problems
    assert [(problem.what, problem.why) for problem in found] == [
        (f"{other}: Check names no test", "there is no tests/test_it.py::helper")
    ]


def test_a_variant_must_change_the_same_functions(good):
    after = good.patch("two@1.1", LOOP, base="1.1")
    good.series("s11", "two")
    good.stack("b", "1.1", "s11")
    main(["patches", "export"])
    assert findings(good) == ["stack b: patched tree and wheel are not locked"]
    good.patch("two@1.1", LOOP, ("second = first * 8", "second = first * 9"), base="1.1")
    main(["patches", "export"])
    problems = check(good.queue, good.root).problems
    assert f"{good.queue / 'two@1.1.patch'}: changes other functions than two.patch" in [
        problem.what for problem in problems
    ]
    assert any(problem.why == f"{GENERATOR}::step_8" for problem in problems)
    assert WORKER in after


def test_a_patch_on_a_base_that_no_stack_uses_is_told(good):
    (good.root / "containers" / "stacks" / "a" / "stack.yaml").unlink()
    assert f"{good.queue / 'one.patch'}: no stack applies it on its own base" in findings(good)


@pytest.mark.usefixtures("good")
def test_list_has_a_row_a_patch(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["patches", "list"]) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("two"))
    assert "12" in row
    assert "Submitted" in row
    assert "+1 -1" in row
    assert row.endswith("test_it.py::test_it")
    assert "1 a" in printed
    assert main(["patches", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["patch"], row["stacks"], row["upstream_status"]) for row in rows] == [
        ("one", ["a", "b"], "Inappropriate"),
        ("two", ["a", "b"], "Submitted"),
    ]


def test_apply_writes_the_locked_wheel_or_says_that_it_is_another(good, tmp_path, capsys):
    assert main(["patches", "apply", "--stack", "a", "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["speculators-1.0+s10-py3-none-any.whl"]
    good.series("s10", "one")
    assert main(["patches", "apply", "--stack", "a", "--out", str(tmp_path / "out")]) == 5
    assert "not the wheel that the lock of a names" in capsys.readouterr().err


def test_apply_to_a_folder_tells_the_truth(good, tmp_path, capsys):
    found = wheel.read(good.wheel("1.0"))
    for name, data in found.package.items():
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_bytes(data)
    words = []
    for _ in range(2):
        assert main(["patches", "apply", "--stack", "a", str(tmp_path / "t")]) == 0
        words.append(capsys.readouterr().out.splitlines()[0].split(": ")[1])
    tree = uses.of_stack("a", uses.all_uses()).tree
    assert words == [f"applied, tree {tree}", f"already applied, tree {tree}"]


def test_a_list_of_seams_that_is_missing_or_older_than_the_patches_is_told(project):
    files = {f"{entry.replace('.', '/')}.py": f"# {entry}\n" for entry in ENTRIES}
    project.release("3.0", files)
    project.series("s")
    project.stack("a", "3.0", "s")
    listed = project.queue / "seams" / "a.json"
    assert "stack a: no list of seams" in findings(project)
    listed.parent.mkdir()
    old = files_sha256(text.encode() for text in files.values())
    listed.write_text(to_json(SeamList("s", "3.0", None, old)))
    assert not any("seams" in what for what in findings(project))
    listed.write_text(to_json(SeamList("s", "3.0", None, "0" * 64)))
    assert f"{listed}: made from other files than the patched ones of now" in findings(project)
    listed.write_text("{}")
    assert any(what.startswith(f"{listed} is not a seams file") for what in findings(project))


def test_apply_tells_the_outcome_as_json(good, tmp_path, capsys):
    where = tmp_path / "unpacked"
    zipfile.ZipFile(good.wheel("1.0")).extractall(where)
    outcomes = []
    for _ in range(2):
        assert main(["patches", "apply", "--stack", "a", "--json", str(where)]) == 0
        outcomes.append(json.loads(capsys.readouterr().out))
    assert [told["outcome"] for told in outcomes] == ["applied", "already applied"]
    assert outcomes[0]["changed"] == [GENERATOR]
    (where / GENERATOR).write_text("something else\n")
    assert main(["patches", "apply", "--stack", "a", "--json", str(where)]) == 5
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] == "refused"
    assert all(set(problem) == {"what", "why", "fix"} for problem in told["problems"])
    assert main(["patches", "apply", "--stack", "a", "--json", "--out", str(tmp_path / "dist")]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "built"
