"""All forms of rows say the same conversation, or are refused by the name of what is wrong."""

import json

import pytest

from draftkiln.prepare import rows
from draftkiln.prepare.conversation import Conversation, TextRow
from draftkiln.prepare.forms import Rules, parse
from draftkiln.prepare.outcome import Refusal, RefusedRowError
from draftkiln.prepare.rows import LeftOut, Source

USER, ANSWER = {"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello."}


def said(row, **rules):
    return parse("d.jsonl:1", row, Rules(**rules)).messages


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [USER, ANSWER]},
        {"conversations": [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "Hello."}]},
        {"prompt": "Hi?", "response": "Hello."},
        {"instruction": "Hi?", "output": "Hello."},
        {"prompt": [USER], "completion": [ANSWER]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi?"}]}, ANSWER], "tools": None},
    ],
)
def test_all_forms_give_the_same_conversation(row):
    assert said(row) == (USER, ANSWER)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_case_17_reasoning_is_found_under_its_usual_names(name):
    (_, answer) = said({"messages": [USER, ANSWER | {name: "because so"}]})
    assert answer == ANSWER | {"reasoning": "because so"}


def test_case_43_the_recipes_role_map_says_what_other_names_mean():
    row = {"messages": [USER, {"role": "laguna_s", "content": "Hello."}]}
    assert said(row, roles={"laguna_s": "assistant"}) == (USER, ANSWER)
    observed = {"messages": [USER, ANSWER, {"role": "observation", "content": "12"}, ANSWER]}
    assert [turn["role"] for turn in said(observed, roles={"observation": "tool"})][2] == "tool"


def test_case_43_a_turn_of_a_tool_is_never_lost_and_never_an_answer():
    result = {"role": "tool", "content": "12", "tool_call_id": "c1", "name": "count", "other": 1}
    found = said({"messages": [USER, ANSWER, result, ANSWER]})
    assert len(found) == 4
    assert found[2] == {"role": "tool", "content": "12", "tool_call_id": "c1", "name": "count"}
    with pytest.raises(RefusedRowError, match="a tool's result without a call"):
        said({"messages": [USER, result, ANSWER]})


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        ([{"role": "developer", "content": "x"}, USER, ANSWER], "'developer'"),
        ([USER, ANSWER, {"role": "system", "content": "x"}, ANSWER], "a system turn after the first"),
        ([{"role": "system", "content": "x"}, {"role": "system", "content": "y"}, USER, ANSWER], "a system turn after"),
        ([USER | {"tool_calls": [{"name": "f"}]}, ANSWER], "tool calls outside an answer: turn 0: user"),
    ],
)
def test_turns_that_cannot_be_so_are_told(turns, words):
    with pytest.raises(RefusedRowError, match=words):
        said({"messages": turns})


@pytest.mark.parametrize("mark", [{"weight": 0}, {"weight": 0.5}, {"train": False}])
def test_an_answer_marked_as_not_to_be_learnt_refuses_its_row_unless_only_prompts_are_asked_for(mark):
    with pytest.raises(RefusedRowError, match="not to be trained: turn 1"):
        said({"messages": [USER, ANSWER | mark]})
    assert said({"messages": [USER, ANSWER | mark]}, prompts_only=True) == (USER,)
    assert said({"messages": [USER, ANSWER | {"weight": 1, "train": None}]}) == (USER, ANSWER)


def test_a_row_with_two_lists_of_turns_says_not_which_is_meant():
    with pytest.raises(RefusedRowError, match="two forms in one row"):
        said({"messages": [USER, ANSWER], "conversations": [{"from": "human", "value": "?"}]})
    assert said({"messages": [USER, ANSWER], "conversations": None}) == (USER, ANSWER)


def test_a_developer_turn_may_follow_the_system_turn():
    turns = [{"role": "system", "content": "x"}, {"role": "developer", "content": "y"}, USER, ANSWER]
    assert [turn["role"] for turn in said({"messages": turns}, roles={"developer": "developer"})][1] == "developer"


def test_raw_text_needs_a_rule():
    with pytest.raises(RefusedRowError, match="raw text without a rule"):
        said({"text": "Once."})
    assert parse("d.jsonl:1", {"story": "Once.", "id": 3}, Rules(text_field="story")) == TextRow(
        "d.jsonl:1", "Once.", "3"
    )
    with pytest.raises(RefusedRowError, match="empty text: story"):
        said({"story": " "}, text_field="story")


def test_case_47_ids_of_mixed_types_read_as_text():
    assert [parse("d:1", {"id": number, "messages": [USER, ANSWER]}, Rules()).row_id for number in (7, "7", None)] == [
        "7",
        "7",
        None,
    ]


def written(path, count):
    lines = [json.dumps({"messages": [{**USER, "content": f"q{number}"}, ANSWER]}) for number in range(count)]
    path.write_text("\n".join(lines))
    return path


def test_weights_take_rows_by_their_content_whatever_their_order(tmp_path):
    file = written(tmp_path / "d.jsonl", 400)
    found = list(rows.read([Source(file, 0.25)], Rules()))
    taken = {row.messages[0]["content"] for row in found if isinstance(row, Conversation)}
    assert 60 < len(taken) < 140
    assert len(taken) + sum(isinstance(row, LeftOut) for row in found) == 400
    turned = tmp_path / "turned.jsonl"
    turned.write_text("\n".join(reversed(file.read_text().splitlines())))
    again = [row for row in rows.read([Source(turned, 0.25)], Rules()) if isinstance(row, Conversation)]
    assert {row.messages[0]["content"] for row in again} == taken


def test_weights_above_one_take_rows_again_under_names_of_their_own(tmp_path):
    file = written(tmp_path / "d.jsonl", 2)
    assert [row.source for row in rows.read([Source(file, 2)], Rules())] == [
        f"{file}:1",
        f"{file}:1 again 1",
        f"{file}:2",
        f"{file}:2 again 1",
    ]


def test_several_files_are_read_one_after_the_other_and_the_limit_counts_them_all(tmp_path):
    first, second = written(tmp_path / "a.jsonl", 2), written(tmp_path / "b.jsonl", 2)
    found = list(rows.read([Source(first), Source(second)], Rules(), limit=3))
    assert [row.source for row in found] == [f"{first}:1", f"{first}:2", f"{second}:1"]
    assert not any(isinstance(row, Refusal) for row in found)
