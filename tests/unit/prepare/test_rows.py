"""Every row ends as a conversation or as a refusal with file, line and reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.errors import DataError
from draftkiln.prepare import rows
from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.forms import Rules
from draftkiln.prepare.outcome import Outcome, Refusal
from draftkiln.prepare.rows import Source
from draftkiln.prepare.samples import Limits, check_share, from_conversations
from draftkiln.prepare.template import Template

from .stubs import Tokenizer, strict

USER, ANSWER = {"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello."}
TWELVE = [
    [USER, ANSWER],
    [],
    [ANSWER, USER, ANSWER],
    [USER, USER, ANSWER],
    [{"role": "system", "content": "Be kind."}],
    [{"content": "Hi?"}, ANSWER],
    [USER, {"role": "assistant", "content": None}],
    [{"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": " there?"}]}, ANSWER],
    [USER, ANSWER, USER],
    [USER, {"role": "assistant", "content": " \n"}],
    [USER, {"role": "assistant", "content": "Again."}],
    [USER, {"role": "assistant", "content": "Last."}],
]


def write(path, values):
    path.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in values))
    return path


def read(path, *, limit=None, weight=1.0, **rules):
    return rows.read([Source(path, weight)], Rules(**rules), limit=limit)


def test_case_16_bad_rows_are_refused_by_reason_and_line_and_good_ones_keep_their_source(tmp_path):
    values = [{"id": min(place, 10), "messages": turns} for place, turns in enumerate(TWELVE)]
    file = write(tmp_path / "d.jsonl", values)
    found = list(read(file))
    kept = [row.source for row in found if isinstance(row, Conversation)]
    assert kept == [f"{file}:{number}" for number in (1, 8, 9, 11, 12)]
    refused = {row.source.rsplit(":", 1)[1]: row.reason for row in found if isinstance(row, Refusal)}
    assert refused == {
        "2": "no answer",
        "3": "turns out of order",
        "4": "turns out of order",
        "5": "no answer",
        "6": "a turn has no role",
        "7": "content is not text",
        "10": "empty turn",
    }
    by_line = {row.source.rsplit(":", 1)[1]: row for row in found if isinstance(row, Conversation)}
    assert by_line["8"].messages[0]["content"] == "Hi there?"
    assert (len(by_line["9"].messages), by_line["9"].dropped_turns) == (2, 1)
    assert by_line["11"].row_id == by_line["12"].row_id == "10"


def test_case_16_a_template_that_raises_costs_one_row_and_too_many_refusals_the_run(tmp_path):
    file = write(tmp_path / "d.jsonl", [{"messages": turns} for turns in TWELVE])
    outcome = Outcome()
    found = list(read(file))
    for row in found:
        if isinstance(row, Refusal):
            outcome.note(row)
    good = [row for row in found if isinstance(row, Conversation)]
    doubled = Conversation(f"{file}:99", (USER, USER, ANSWER))
    from_conversations([*good, doubled], Template(Tokenizer(strict)), Limits(512), "template", outcome)
    assert [sample.source for sample in outcome.samples] == [row.source for row in good]
    assert outcome.refusals[-1].reason == "the template raised"
    assert "must alternate" in outcome.refusals[-1].detail
    check_share(outcome, 0.7)
    with pytest.raises(DataError) as caught:
        check_share(outcome, 0.5)
    assert "8 of 13 rows are refused" in str(caught.value)
    assert f"2 x turns out of order, the first: {file}:3" in str(caught.value)


def test_case_16_no_good_row_fails_whatever_share_is_allowed():
    outcome = Outcome(refusals=[Refusal("d.jsonl:1", "empty turn")])
    with pytest.raises(DataError, match="nothing is left to train on"):
        check_share(outcome, 1.0)


@pytest.mark.parametrize("role", ["laguna_s", "observation", "function", "developer", 7])
def test_case_43_an_unknown_role_refuses_the_row_by_its_name(tmp_path, role):
    (row,) = read(write(tmp_path / "d.jsonl", [{"messages": [USER, {"role": role, "content": "x"}]}]))
    assert (row.reason, row.detail) == ("unknown role", f"turn 1: {role!r}")


def test_case_44_sharegpt_rows_give_the_same_conversation_with_system_and_all_turns(tmp_path):
    turns = [("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d")]
    share = {"system": "Be kind.", "conversations": [{"from": role, "value": text} for role, text in turns]}
    plain = {
        "messages": [{"role": "system", "content": "Be kind."}]
        + [{"role": {"human": "user", "gpt": "assistant"}[role], "content": text} for role, text in turns]
    }
    first, second = read(write(tmp_path / "d.jsonl", [share, plain]))
    assert first.messages == second.messages
    assert len(first.messages) == 5


def test_case_47_bytes_that_are_no_rows_are_refused_by_line_and_odd_but_right_ones_read(tmp_path):
    row = json.dumps({"messages": [USER, ANSWER]}).encode()
    odd = json.dumps({"messages": [{"role": "user", "content": "a\u2028b"}, ANSWER]}, ensure_ascii=False).encode()
    lines = [
        b"\xef\xbb\xbf" + row,
        b"\n",
        odd,
        b'{"messages": "caf\xe9"}',
        b"[1, 2]",
        b"{",
        b'{"text": "x"}',
        b"x" * 5_000_000,
        row.replace(b'"content": "', b'"content": "\\ud800', 1),
    ]
    file = tmp_path / "d.jsonl"
    file.write_bytes(b"\n".join(lines))
    found = list(read(file))
    assert [row.source.rsplit(":", 1)[1] for row in found] == ["1", "4", "5", "6", "7", "8", "9", "10"]
    assert [type(row) for row in found[:2]] == [Conversation, Conversation]
    reasons = [row.reason for row in found[2:]]
    told = ["not UTF-8", "not an object", "not JSON", "raw text without a rule", "not JSON", "not Unicode"]
    assert reasons == told


def test_case_47_a_list_of_lists_is_refused_row_by_row_with_its_line(tmp_path):
    file = tmp_path / "d.json"
    file.write_text(json.dumps([[USER, ANSWER], {"messages": [USER, ANSWER]}], indent=0))
    first, second = read(file)
    assert (first.source, first.reason, first.detail) == (f"{file}:2", "not an object", "a list")
    assert isinstance(second, Conversation)


def test_files_that_cannot_be_read_are_told_apart(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    for name, words in (("none.jsonl", "No such file"), ("", "it is a directory"), ("empty.jsonl", "holds no row")):
        with pytest.raises(DataError, match=words):
            list(read(tmp_path / name))


def test_prompts_need_no_answer_and_end_with_the_user(tmp_path):
    file = write(tmp_path / "d.jsonl", [{"messages": [USER]}, {"messages": [USER, ANSWER, USER, ANSWER]}])
    first, second = read(file, prompts_only=True)
    assert [len(row.prompt()) for row in (first, second)] == [1, 3]
    assert not second.answered


def test_the_limit_counts_rows_from_the_start(tmp_path):
    file = write(tmp_path / "d.jsonl", [{"messages": turns} for turns in TWELVE])
    assert len(list(read(file, limit=4))) == 4


@given(st.binary(max_size=400))
def test_any_bytes_give_conversations_and_refusals_and_nothing_else(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("rows") / "d.jsonl"
    file.write_bytes(content)
    try:
        found = list(read(file))
    except DataError:
        assert not content.strip(b"\n\r\t\v\f \xef\xbb\xbf")
    else:
        assert all(isinstance(row, Conversation | Refusal) for row in found)
