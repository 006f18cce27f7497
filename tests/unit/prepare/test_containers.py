"""Files that hold rows, whole or broken: the same rows, or file and line of what is wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.errors import DataError
from draftkiln.prepare import containers
from draftkiln.prepare.containers import read
from draftkiln.prepare.outcome import RefusedRowError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON, min_size=1, max_size=6), st.sampled_from([None, 2]), st.integers(1, 40))
def test_a_json_list_gives_its_elements_however_it_is_cut_into_blocks(tmp_path_factory, values, indent, block):
    file = tmp_path_factory.mktemp("list") / "d.json"
    file.write_text(json.dumps(values, indent=indent, ensure_ascii=False), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(containers, "_BLOCK", block)
        assert [value for _, value in read(file)] == values


def test_elements_of_a_json_list_are_named_by_their_line(tmp_path):
    file = tmp_path / "d.json"
    file.write_text(json.dumps([{"a": 1}, {"b": 2}], indent=2))
    assert [place for place, _ in read(file)] == [f"{file}:2", f"{file}:5"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[\n{"a": 1},\n{"b": \n', 3, "cannot be read from here on"),
        ('[\n{"a": 1}\n', 3, "the list is not closed"),
        ('[{"a": 1}]\n{"b": 2}', 1, "text after the list"),
        ("[1, x]", 1, "cannot be read from here on"),
    ],
)
def test_case_47_a_broken_json_list_is_told_with_file_and_line(tmp_path, text, line, words):
    file = tmp_path / "d.json"
    file.write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        list(read(file))
    assert str(caught.value).startswith(f"{file}:{line}: ")


def test_case_47_a_json_list_in_another_encoding_is_told_with_its_line(tmp_path):
    file = tmp_path / "d.json"
    file.write_bytes('[\n{"a": "x"},\n{"a": "café"}]'.encode("latin-1"))
    with pytest.raises(DataError, match=f"{file}:3: not UTF-8"):
        list(read(file))


def test_case_47_json_lines_named_json_are_read_as_lines(tmp_path):
    file = tmp_path / "d.json"
    file.write_text('\ufeff{"a": 1}\n{"a": "1"}\n\n')
    assert list(read(file)) == [(f"{file}:1", {"a": 1}), (f"{file}:2", {"a": "1"})]


def test_case_47_one_line_of_5_mb_is_read(tmp_path):
    file = tmp_path / "d.jsonl"
    file.write_text(json.dumps({"a": "x" * 5_000_000}) + "\n")
    ((_, value),) = read(file)
    assert len(value["a"]) == 5_000_000


def test_a_line_longer_than_any_row_is_refused_and_the_next_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "LONGEST_ROW", 1000)
    monkeypatch.setattr(containers, "_BLOCK", 64)
    file = tmp_path / "d.jsonl"
    file.write_text(json.dumps({"a": "x" * 2000}) + "\n" + json.dumps({"a": "x" * 980}) + "\n" + "y" * 2000)
    (first, refused), (second, row), (third, cut) = read(file)
    assert [place.rsplit(":", 1)[1] for place in (first, second, third)] == ["1", "2", "3"]
    assert refused.reason == cut.reason == "too long a line"
    assert len(row["a"]) == 980


def test_an_element_of_a_json_list_that_never_ends_is_told_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(containers, "LONGEST_ROW", 1000)
    monkeypatch.setattr(containers, "_BLOCK", 64)
    file = tmp_path / "d.json"
    file.write_text('[{"a": 1},\n{"a": "' + "x" * 5000)
    with pytest.raises(DataError, match="longer than 0 MiB, or not closed") as caught:
        list(read(file))
    assert str(caught.value).startswith(f"{file}:2: ")


def test_deep_nesting_refuses_a_line_and_not_the_file(tmp_path):
    file = tmp_path / "d.jsonl"
    file.write_text("[" * 200_000 + "\n{}\n")
    (_, first), (_, second) = read(file)
    assert isinstance(first, RefusedRowError)
    assert second == {}


def test_folders_that_hold_no_saved_dataset_are_told(tmp_path):
    with pytest.raises(DataError, match="it is a directory, and not one that `datasets` saved"):
        list(read(tmp_path))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(DataError, match=r"several splits \(train, test\)"):
        list(read(tmp_path))


def test_case_46_keys_that_a_column_store_fills_in_are_taken_out_again():
    filled = {"messages": [{"role": "user", "content": "a", "tool_calls": None}], "tools": None}
    ((place, row),) = containers._numbered("d.parquet", iter([[filled]]))
    assert (place, row) == ("d.parquet:row 1", {"messages": [{"role": "user", "content": "a"}]})
