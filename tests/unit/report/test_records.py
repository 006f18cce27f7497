import json

from hypothesis import given
from hypothesis import strategies as st

from draftkiln.report.records import Records, pointer


@given(st.dictionaries(st.text(max_size=6), st.lists(st.integers(), max_size=3) | st.integers(), max_size=5))
def test_a_source_leads_back_to_its_value(content):
    records = Records(__import__("pathlib").Path("/nowhere"), _documents={"f.json": content})
    for key, value in content.items():
        found = records.value("f.json", key)
        assert found is not None
        assert found.value == value
        name, _, path = found.source.partition("#")
        assert name == "f.json"
        assert path.split("/")[1].replace("~1", "/").replace("~0", "~") == key


def test_a_pointer_escapes_as_rfc_6901_says():
    assert pointer(("a/b", "m~n", 0)) == "/a~1b/m~0n/0"


def test_what_is_not_there_is_none(tmp_path):
    (tmp_path / "f.json").write_text('{"a": [1, {"b": null}]}')
    records = Records(tmp_path)
    assert records.at("f.json", "a", 1, "b") is None
    assert records.at("f.json", "a", 9) is None
    assert records.at("f.json", "a", "b") is None
    assert records.at("g.json", "a") is None
    assert records.mapping("f.json", "a") == {}
    assert records.sequence("f.json", "a") == [1, {"b": None}]
    assert records.damaged == {}


def test_files_that_are_no_json_are_told(tmp_path):
    (tmp_path / "f.json").write_text("{")
    (tmp_path / "g.jsonl").write_text('{"a": 1}\nnonsense\n{"b": 2}\n')
    records = Records(tmp_path)
    assert records.at("f.json") is None
    assert list(records.numbered("g.jsonl")) == []
    assert set(records.damaged) == {"f.json", "g.jsonl"}


def test_lines_keep_their_numbers_and_a_torn_one_is_left_out(tmp_path):
    lines = [{"a": 1}, None, {"a": 2}]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"a": 3')
    assert [number for number, _ in Records(tmp_path).numbered("f.jsonl")] == [0, 2]


def test_digits_without_end_and_nesting_without_end_are_told(tmp_path):
    (tmp_path / "f.json").write_text("[" * 100_000)
    (tmp_path / "g.json").write_text("9" * 10_000)
    records = Records(tmp_path)
    assert records.at("f.json") is None
    assert records.at("g.json") is None
    assert set(records.damaged) == {"f.json", "g.json"}
