import json
import re
from pathlib import Path

import made_run
import page_reader
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftkiln.cli import main
from draftkiln.errors import ExitCode
from draftkiln.report import command
from draftkiln.report.page import render
from draftkiln.report.records import Records

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]>&lt;b&gt;",
    "</style><style>*{display:none}",
    "'`${x}",
    "\u202eabc",
    "\x00\x1b[31m",
    "javascript:alert(1)",
    "<!--",
    "é日本語🙂",
    "a" * 3000,
    "/../../etc",
    "~0~1/%2F#?",
]


def page(run):
    return page_reader.parse(render(Records.open(run)))


def test_every_number_on_the_page_is_that_of_the_runs_files(tmp_path):
    made_run.write(tmp_path)
    root = page(tmp_path)
    assert page_reader.check_numbers(tmp_path, root) > 150
    shown = {node.attributes.get("data-from") for node in root.all("data")}
    assert {
        "evaluate/result.json#/acceptance_length",
        "train/stage.json#/results/loss_last",
        "validate/report.json#/states/layers/2/norm_median",
        "extract/stage.json#/results/tokens_per_second",
    } <= shown


def test_a_number_that_is_not_that_of_its_file_is_found(tmp_path):
    made_run.write(tmp_path)
    root = page(tmp_path)
    made_run.put(tmp_path / "evaluate" / "result.json", {"acceptance_length": 3.5})
    with pytest.raises((AssertionError, KeyError)):
        page_reader.check_numbers(tmp_path, root)


def test_no_number_stands_outside_of_what_says_where_it_comes_from(tmp_path):
    made_run.write(tmp_path, name="made")
    body = next(page(tmp_path).all("body"))
    free = body.without("data", "svg", "code", classes=("v", "range"))
    # draft tokens by their place, "tokens 1 to k", and the name of a hash
    assert set(re.findall(r"\d+(?:\.\d+)?", free)) <= {"1", "2", "3", "256"}


def test_the_drawn_loss_is_the_loss(tmp_path):
    made_run.write(tmp_path, steps=300)
    chart = next(svg for svg in page(tmp_path).all("svg") if svg.attributes["aria-label"] == "loss over the steps")
    drawn = page_reader.drawn_points(chart, next(chart.all("path")))
    wanted = [line for line in Records.open(tmp_path).sequence("train/curve.jsonl") if not line.get("validation")]
    assert len(drawn) == len(wanted) == 300
    for (step, loss), line in zip(drawn, wanted, strict=True):
        assert step == pytest.approx(line["step"], abs=0.1)
        assert loss == pytest.approx(line["loss"], abs=0.01)


@pytest.mark.parametrize("word", HOSTILE)
def test_text_of_files_stays_text(tmp_path, word):
    made_run.write(tmp_path, name=word, word=word.replace("\x00", ""))
    html = render(Records.open(tmp_path))
    root = page_reader.parse(html)
    tags = {node.tag for name in ("script", "img", "iframe", "object", "link", "b") for node in root.all(name)} - {"b"}
    assert not tags
    assert len(list(root.all("style"))) == 1
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e]", html)
    for node in root.all("a"):
        assert node.attributes["href"].startswith(("#", "https://"))
    if word.isprintable() and len(word) < 100:
        assert word in next(root.all("h1")).text


@given(
    name=st.text(max_size=40),
    word=st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=40),
)
def test_any_text_gives_a_page_that_parses(tmp_path_factory, name, word):
    run = tmp_path_factory.mktemp("run")
    made_run.write(run, name=name, word=word, steps=9)
    root = page_reader.parse(render(Records.open(run)))
    assert len(list(root.all("section"))) == 9
    assert not list(root.all("script"))
    assert len(page_reader.ids(root)) == len(set(page_reader.ids(root)))


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    )
)
@example(value=5e-324)
@example(value=1.7e308)
@example(value=[-1.7e308, 1.7e308])
def test_records_of_another_shape_still_give_a_page(tmp_path_factory, value):
    run = tmp_path_factory.mktemp("run")
    made_run.write(run, steps=9)
    for file in ("evaluate/result.json", "prepare/prepare-report.json"):
        made_run.put(run / file, value)
    made_run.put(
        run / "train" / "stage.json", {"inputs": {"stack": value}, "results": {"settings": value, "steps": value}}
    )
    made_run.lines(
        run / "logs" / "extract.jsonl", [value, {"event": "progress", "at": value, "tokens_per_second": value}]
    )
    made_run.lines(run / "train" / "curve.jsonl", [value, {"step": 1, "loss": value, "accuracy": value}])
    assert "</html>" in render(Records.open(run))


@pytest.mark.parametrize("until", made_run.NAMES[:-1])
def test_an_unfinished_run_has_a_page_that_names_what_is_missing(tmp_path, until):
    made_run.write(tmp_path, until=until)
    root = page(tmp_path)
    page_reader.check_numbers(tmp_path, root)
    missing = made_run.NAMES[made_run.NAMES.index(until) + 1]
    assert f"{missing} is not begun" in next(root.all("header")).text
    assert f"Stage {missing} is not begun." in root.text


def test_a_stage_that_stopped_is_shown_with_its_error(tmp_path):
    made_run.write(tmp_path, until="validate")
    made_run.put(tmp_path / "train" / "begun.json", {"inputs": {"stack": "s"}})
    made_run.lines(
        tmp_path / "logs" / "train.jsonl",
        [
            {"event": "begin"},
            {"event": "error", "text": "error of the begin before"},
            {"event": "begin"},
            {"event": "error", "text": "the loss of step 9 is nan"},
        ],
    )
    text = page(tmp_path).text
    assert "train is begun" in text
    assert "the loss of step 9 is nan" in text
    assert "error of the begin before" not in text


def test_an_empty_run_has_a_page(tmp_path):
    made_run.put(tmp_path / "run.json", {"recipe": "r", "schema_version": 1})
    assert "prepare is not begun" in page(tmp_path).text


def test_files_that_cannot_be_read_are_named_and_the_rest_is_shown(tmp_path):
    made_run.write(tmp_path)
    (tmp_path / "train" / "stage.json").write_text('{"inputs": ')
    (tmp_path / "validate" / "report.json").write_bytes(b"\xff\xfe")
    text = page(tmp_path).text
    assert "train is unreadable" in text
    assert "validate/report.json is damaged: UnicodeDecodeError" in text
    assert "2.4567" in text


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e308])
def test_seconds_that_are_no_number_give_a_page_all_the_same(tmp_path, seconds):
    made_run.write(tmp_path)
    damage(tmp_path, "train/stage.json", lambda record: record["results"].update(stage_seconds=seconds))
    assert "train" in page(tmp_path).text


def damage(run, file, how):
    path = run / file
    if callable(how):
        value = json.loads(path.read_text())
        how(value)
        how = json.dumps(value)
    path.write_text(how)


DAMAGED = [
    ("train/stage.json", '{"inputs": {', "JSONDecodeError"),
    ("train/stage.json", "[]", "it holds a list, not an object"),
    ("train/stage.json", '{"inputs": {}}', "'results' is nothing, not an object"),
    ("train/stage.json", '{"inputs": 7, "results": []}', "'inputs' is a number, not an object; 'results' is a list"),
    ("train/stage.json", lambda record: record.update(files=[]), "'files' is a list, not an object"),
    ("train/stage.json", lambda record: record["results"].update(steps="all"), "results.steps is a text, not a number"),
    ("train/stage.json", lambda record: record["results"].update(stage_seconds=True), "stage_seconds is true or false"),
    ("prepare/stage.json", "null", "it holds nothing, not an object"),
    ("run.json", '{"recipe": ', "JSONDecodeError"),
    ("evaluate/result.json", "[1]", "it holds a list, not an object"),
    ("evaluate/result.json", lambda record: record.update(acceptance_length="2.5"), "acceptance_length is a text"),
    ("evaluate/result.json", lambda record: record["acceptance_per_position"].append({}), "an object, not a number"),
    ("validate/report.json", lambda record: record["states"]["layers"].pop(), "'states' holds something else"),
    ("validate/report.json", lambda record: record["agreements"].append(7), "has no number 'min_cosine'"),
    ("extract/manifest.jsonl", '{"layer_ids": [1]}\n{"index": 0, "rows"\n{}\n', "line 2: "),
    ("extract/manifest.jsonl", '{"layer_ids": [1]}\n[]\n', "line 2 is a list, not an object"),
    ("extract/manifest.jsonl", '{"layer_ids": [1]}\n{"index": 0}\n', "line 2 is no receipt of a sample"),
    ("extract/manifest.jsonl", '{"layer_ids": [1]}\n{"withdrawn": [[1]]}\n', "line 2 is no receipt of a sample"),
    ("extract/manifest.jsonl", '{"layer_ids": [1]}\n{"withdrawn": 5}\n', "line 2 is no receipt of a sample"),
    ("train/stage.json", '{"inputs": {"stack": "\\ud800"}, "results": {}}', "it holds half a character"),
    ("train/curve.jsonl", '{"step": 1, "loss": "x"}\n', "0.loss is a text, not a number"),
]


@pytest.mark.parametrize(("file", "how", "words"), DAMAGED)
def test_a_damaged_record_is_named_with_what_is_wrong_on_the_terminal_and_on_the_page(
    tmp_path, capsys, file, how, words
):
    made_run.write(tmp_path, steps=9)
    damage(tmp_path, file, how)
    assert main(["report", "--run", str(tmp_path)]) == ExitCode.OK
    told = capsys.readouterr().err
    assert told.startswith(f"report: {tmp_path / file} is damaged: ")
    assert words in told
    root = page_reader.parse((tmp_path / "report.html").read_text(encoding="utf-8"))
    line = f"{file} is damaged: {told.partition(' is damaged: ')[2].splitlines()[0]}"
    assert line in next(root.all("header")).text
    if file != "run.json":
        assert root.text.count(line) == 3  # on top, in the part that is made of it, and where all is recorded


def test_a_good_run_is_told_without_a_word_of_damage(tmp_path, capsys):
    made_run.write(tmp_path)
    assert main(["report", "--run", str(tmp_path)]) == ExitCode.OK
    assert capsys.readouterr().err == ""
    assert "damaged" not in page(tmp_path).text


@pytest.mark.parametrize(
    ("file", "free"),
    [
        ("extract/manifest.jsonl", "samples durable so far"),
        ("validate/report.json", "draftkiln validate writes them"),
        ("prepare/stage.json", "✗ extract read the record of prepare"),
        ("logs/extract.jsonl", "holds no rates over time"),
    ],
)
def test_nothing_is_concluded_from_a_damaged_file(tmp_path, file, free):
    made_run.write(tmp_path, until="validate")
    record = tmp_path / "extract" / "stage.json"
    record.rename(record.with_name("begun.json"))
    (tmp_path / file).unlink()
    damage(tmp_path, file, "{\n{}\n")
    assert free not in page(tmp_path).text


def test_a_torn_last_line_and_steps_done_twice_are_read(tmp_path):
    made_run.write(tmp_path, until="train", steps=30)
    curve = tmp_path / "train" / "curve.jsonl"
    again = '{"step": 30, "epoch": 0, "loss": 7.25, "accuracy": [0.5], "tokens_per_second": 1}\n{"step": 31, "lo'
    curve.write_text(curve.read_text() + again)
    root = page(tmp_path)
    sources = [node.attributes["data-from"] for node in root.all("data") if node.attributes.get("value") == "7.25"]
    assert sources == ["train/curve.jsonl#/33/loss"]


def test_a_loss_that_is_no_number_is_left_out_of_the_picture(tmp_path):
    made_run.write(tmp_path, until="train", steps=30)
    curve = tmp_path / "train" / "curve.jsonl"
    curve.write_text(curve.read_text() + '{"step": 31, "loss": NaN, "accuracy": [0.5], "tokens_per_second": 1}\n')
    html = render(Records.open(tmp_path))
    assert not re.search(r' d="[^"]*nan', html)


def test_links_of_the_chain_that_do_not_hold_are_told(tmp_path):
    made_run.write(tmp_path)
    good = page(tmp_path)
    assert "✗" not in good.text
    assert good.text.count("✓") > 12
    record = Records.open(tmp_path).at("evaluate/result.json")
    made_run.put(tmp_path / "evaluate" / "result.json", {**record, "draft_sha256": made_run.sha("another")})
    record = Records.open(tmp_path).at("prepare/stage.json")
    made_run.put(tmp_path / "prepare" / "stage.json", {**record, "inputs": {**record["inputs"], "stack": "other"}})
    text = page(tmp_path).text
    assert "✗ the draft that was measured is the exported one" in text
    assert "✗ extract read the record of prepare that lies here" in text
    assert "✓ train read the record of extract that lies here" in text


def test_published_drafts_stand_beside_one_of_the_same_target_with_their_sources(tmp_path):
    made_run.write(tmp_path, hub="moonshotai/kimi-k2.5")
    root = page(tmp_path)
    links = [node.attributes["href"] for node in root.all("a") if node.attributes["href"].startswith("https")]
    assert set(links) == {
        "https://huggingface.co/lightseekorg/kimi-k2.5-eagle3",
        "https://huggingface.co/lightseekorg/kimi-k2.5-eagle3-mla",
    }
    stated = {node.attributes["value"] for node in root.all("data") if "data-published" in node.attributes}
    assert {"2.687", "3.201", "2.94"} <= stated


def test_by_position_published_drafts_are_drawn_beside(tmp_path):
    made_run.write(tmp_path, hub="moonshotai/Kimi-K2.6")
    chart = next(svg for svg in page(tmp_path).all("svg") if svg.attributes["aria-label"] == "acceptance by position")
    assert "k-l-lambda/kimi-k2.6-eagle3-mla" in chart.text
    assert len([bar for bar in chart.all("rect") if list(bar.all("title"))]) == 9


def test_no_published_figure_stands_beside_another_target(tmp_path):
    made_run.write(tmp_path)
    root = page(tmp_path)
    assert not [node for node in root.all("data") if "data-published" in node.attributes]
    assert "No published draft" in root.text


def test_it_loads_nothing_and_stays_small(tmp_path):
    made_run.write(tmp_path, steps=50_000)
    html = render(Records.open(tmp_path))
    assert len(html.encode()) < 1_000_000
    assert "default-src 'none'" in html
    assert not re.search(r"<(script|img|link|iframe|object|video|audio)\b|url\(|@import|\son\w+=", html)


def test_links_lead_to_parts_of_the_page_and_files_of_the_run(tmp_path, capsys):
    run = tmp_path / "a run"
    made_run.write(run, word="x")
    (run / "prepare" / "x").write_text("there")
    assert main(["report", "--run", str(run)]) == ExitCode.OK
    assert "report.html" in capsys.readouterr().out
    root = page_reader.parse((run / "report.html").read_text(encoding="utf-8"))
    anchors = set(page_reader.ids(root))
    links = [node.attributes["href"] for node in root.all("a")]
    assert [link for link in links if link.startswith("#")]
    assert not [link for link in links if link.startswith("#") and link[1:] not in anchors]
    files = [link for link in links if not link.startswith(("#", "https"))]
    assert (run / "prepare" / "x").exists()
    assert "prepare/x" in files
    assert "logs/train.log" in files


def test_a_record_cannot_link_to_files_of_elsewhere(tmp_path):
    (tmp_path / "secret").write_text("x")
    run = made_run.write(tmp_path / "run", until="prepare")
    record = Records.open(run).at("prepare/stage.json")
    names = ["../secret", str(tmp_path / "secret"), "n" * 3000, "a\x00b", "prepare/stage.json"]
    made_run.put(run / "prepare" / "stage.json", {**record, "files": dict.fromkeys(names, 1)})
    links = {node.attributes["href"] for node in page_reader.parse(render(Records.open(run), "")).all("a")}
    assert {link for link in links if not link.startswith("#")} == {"prepare/stage.json", "logs/prepare.log"}


def test_a_page_elsewhere_has_no_links_to_files(tmp_path):
    made_run.write(tmp_path / "run")
    written, _ = command.write(tmp_path / "run", tmp_path / "sent.html")
    links = [node.attributes["href"] for node in page_reader.parse(written.read_text(encoding="utf-8")).all("a")]
    assert all(link.startswith(("#", "https://")) for link in links)


def test_a_folder_that_is_no_run_is_refused(tmp_path, capsys):
    assert main(["report", "--run", str(tmp_path)]) == ExitCode.RUN_DIRECTORY
    assert "no run directory" in capsys.readouterr().err
    assert not list(Path(tmp_path).iterdir())
