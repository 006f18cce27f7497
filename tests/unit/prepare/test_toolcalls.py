"""Tools and tool calls render alike in whatever form they came, and are never left out without a word."""

import json

import pytest

from draftkiln.prepare import toolcalls
from draftkiln.prepare.forms import Rules, parse
from draftkiln.prepare.outcome import Refusal, RefusedRowError
from draftkiln.prepare.samples import Limits, Renderer
from draftkiln.prepare.template import Template

from .stubs import Tokenizer, chatml

ARGUMENTS = {"town": "Rome", "days": 2}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"town": "string"}}}]


def hermes(messages, *, add_generation_prompt, tools=None, paste=False):
    """Calls as JSON between tags; where `paste` is set, arguments must be text, as in DeepSeek's template."""
    told = [{"role": "system", "content": "Tools: " + json.dumps(tools)}] if tools else []
    turns = []
    for turn in messages:
        text = turn["content"] or ""
        for call in turn.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            text += f"<call>{call['function']['name']} "
            text += "" + arguments if paste else json.dumps(arguments)
        turns.append({"role": turn["role"], "content": text})
    return chatml([*told, *turns], add_generation_prompt=add_generation_prompt)


def row(arguments=ARGUMENTS, *, flat=False, tools=TOOLS, content=None):
    function = {"name": "weather", "arguments": arguments}
    call = function if flat else {"id": "c1", "type": "function", "function": function}
    turns = [
        {"role": "user", "content": "Sun?"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "content": "yes", "tool_call_id": "c1"},
        {"role": "assistant", "content": "Yes."},
    ]
    return {"messages": turns, "tools": tools}


def made(value, template=hermes, **arguments):
    renderer = Renderer(Template(Tokenizer(template), arguments), Limits(512))
    found = renderer.render(parse("d.jsonl:2", value, Rules()))
    return found if isinstance(found, Refusal) else found.parts[0]


def test_case_46_arguments_as_object_and_as_text_give_the_same_ids():
    tokenizer = Tokenizer(hermes)
    renderer = Renderer(Template(tokenizer), Limits(512))
    rows = [row(), row(json.dumps(ARGUMENTS)), row(flat=True), row(tools=json.dumps(TOOLS)), row(content="")]
    found = [renderer.render(parse("d.jsonl:2", value, Rules())).parts[0] for value in rows]
    assert {tuple(sample.input_ids) for sample in found} == {tuple(found[0].input_ids)}
    text = tokenizer.decode(found[0].input_ids)
    assert 'weather {"town": "Rome", "days": 2}' in text
    trained = tokenizer.decode(
        [number for number, bit in zip(found[0].input_ids, found[0].loss_mask, strict=True) if bit]
    )
    assert trained == '<call>weather {"town": "Rome", "days": 2}<|im_end|>Yes.<|im_end|>'


def test_case_46_a_template_that_pastes_arguments_gets_their_text():
    assert toolcalls.style_of(Template(Tokenizer(hermes), {"paste": True})) == toolcalls.Style("text", None)
    assert made(row(), paste=True).input_ids
    assert toolcalls.style_of(Template(Tokenizer(hermes))) == toolcalls.Style("object", None)


def test_a_template_with_a_form_of_its_own_for_arguments_gets_objects_and_pythons_form_is_none():
    def tagged(messages, *, add_generation_prompt, form="<{0}>{1}</{0}>"):
        def body(turn):
            calls = [call["function"] for call in turn.get("tool_calls", ())]
            return (turn["content"] or "") + "".join(
                call["name"] + form.format(key, value, call["arguments"])
                for call in calls
                for key, value in call["arguments"].items()
            )

        turns = [{"role": turn["role"], "content": body(turn)} for turn in messages]
        return chatml(turns, add_generation_prompt=add_generation_prompt)

    assert toolcalls.style_of(Template(Tokenizer(tagged))) == toolcalls.Style("object", None)
    assert toolcalls.style_of(Template(Tokenizer(tagged), {"form": "{2}"})) is None


def test_a_template_that_looks_into_the_content_beside_a_call_gets_an_empty_one():
    def looking(messages, *, add_generation_prompt, tools=None):
        assert all("<|" not in turn["content"] for turn in messages)
        return hermes(messages, add_generation_prompt=add_generation_prompt, tools=tools)

    assert toolcalls.style_of(Template(Tokenizer(looking))) == toolcalls.Style("object", "")
    assert made(row(), looking).input_ids


def test_case_46_a_row_without_tools_renders_as_if_alone_whatever_came_before():
    plain = {"messages": [{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello."}]}
    alone = Renderer(Template(Tokenizer(hermes)), Limits(512))
    after = Renderer(Template(Tokenizer(hermes)), Limits(512))
    after.render(parse("d.jsonl:1", row(), Rules()))
    texts = [
        renderer.template.tokenizer.decode(renderer.render(parse("d.jsonl:2", plain, Rules())).parts[0].input_ids)
        for renderer in (alone, after)
    ]
    assert texts[0] == texts[1]


def test_a_template_that_leaves_calls_or_tools_out_refuses_the_row():
    def deaf(messages, *, add_generation_prompt, tools=None):
        return hermes(messages, add_generation_prompt=add_generation_prompt)

    def without_calls(messages, *, add_generation_prompt, tools=None):
        bare = [{"role": turn["role"], "content": turn["content"] or "nothing"} for turn in messages]
        return hermes(bare, add_generation_prompt=add_generation_prompt, tools=tools)

    assert made(row(), deaf).reason == "the template leaves tools out"
    assert made(row(), without_calls).reason == "the template leaves tool calls out"


def test_a_template_that_leaves_a_turn_out_refuses_the_row():
    def without_tools(messages, *, add_generation_prompt, tools=None):
        kept = [turn for turn in messages if turn["role"] != "tool"]
        return hermes(kept, add_generation_prompt=add_generation_prompt, tools=tools)

    found = made(row(), without_tools)
    assert (found.reason, found.detail) == ("the template leaves a turn out", "turn 2 (tool)")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("x", "a tool call is not an object: turn 1.tool_calls[0]"),
        ({"function": {"arguments": {}}}, "a tool call has no name: turn 1.tool_calls[0]"),
        ({"name": "f", "arguments": "{"}, "tool call arguments are not JSON: turn 1.tool_calls[0].arguments"),
        ({"name": "f", "arguments": "[1]"}, "tool call arguments are not an object: turn 1.tool_calls[0].arguments"),
    ],
)
def test_broken_calls_are_told_with_their_place(call, words):
    with pytest.raises(RefusedRowError) as caught:
        toolcalls.read_calls([call], "turn 1")
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ("{", "tools are not JSON"),
        ({"a": 1}, "tools are not a list of objects"),
        ([{}], "a tool has no name: tools[0]"),
    ],
)
def test_broken_tools_are_told(tools, words):
    with pytest.raises(RefusedRowError) as caught:
        toolcalls.read_tools(tools)
    assert str(caught.value).startswith(words)


def by_ids(messages, *, add_generation_prompt, tools=None):
    """Kimi's way: a call is written by its id, a result names the call."""
    turns = []
    for turn in messages:
        text = turn["content"] or ""
        for call in turn.get("tool_calls", ()):
            text += f"<call>{call['id']} {json.dumps(call['function']['arguments'])}"
        text = f"## Return of {turn['tool_call_id']} {text}" if turn["role"] == "tool" else text
        turns.append({"role": turn["role"], "content": text})
    return chatml(turns, add_generation_prompt=add_generation_prompt)


def test_calls_are_named_by_their_ids_where_the_template_writes_nothing_else():
    style = toolcalls.style_of(Template(Tokenizer(by_ids)))
    assert style == toolcalls.Style("object", None, named_ids=True)
    calls = [{"id": f"x{number}", "name": name, "arguments": {}} for number, name in enumerate(("sun", "rain"))]
    read = toolcalls.read_calls(calls, "turn 1")
    turns = [
        {"role": "user", "content": "Sun? Rain?"},
        {"role": "assistant", "content": None, "tool_calls": read},
        {"role": "tool", "content": "no", "tool_call_id": "x1"},
        {"role": "tool", "content": "yes"},
        {"role": "assistant", "content": None, "tool_calls": read[:1]},
        {"role": "tool", "content": "yes", "tool_call_id": "x0"},
    ]
    _, first, rain, sun, second, again = toolcalls.arrange(turns, style)
    assert [call["id"] for call in first["tool_calls"]] == ["functions.sun:0", "functions.rain:1"]
    assert (rain["tool_call_id"], sun["tool_call_id"]) == ("functions.rain:1", "functions.sun:0")
    assert second["tool_calls"][0]["id"] == again["tool_call_id"] == "functions.sun:2"
    with pytest.raises(RefusedRowError, match="a tool's result belongs to no call: x9"):
        toolcalls.arrange([{"role": "tool", "content": "yes", "tool_call_id": "x9"}], style)
