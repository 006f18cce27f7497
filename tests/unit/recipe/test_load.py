"""Recipes are read whole or refused with every problem at once."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from least_recipe import SYNTHETIC as GOOD

from draftkiln.errors import DraftkilnError, ExitCode, ProblemsError, RecipeError
from draftkiln.recipe.load import load, loads


def problems(text: str) -> list[str]:
    with pytest.raises(ProblemsError) as caught:
        loads(text, "r.yaml")
    assert caught.value.code is ExitCode.RECIPE
    return [str(problem) for problem in caught.value.problems]


def changed(*pairs: tuple[str, str]) -> str:
    text = GOOD
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    return text


def test_a_good_recipe_is_read_with_its_defaults():
    recipe = loads(GOOD, "r.yaml")
    assert recipe.layers.captured(8) == (2, 4, 5, 8)
    assert (recipe.data.max_tokens, recipe.evaluate.num_draft_tokens, recipe.validate_.min_cosine) == (512, 3, 0.9995)
    assert recipe.stacks.of("prepare") == "b"


def test_all_problems_are_reported_at_once_in_line_order_with_file_line_and_key_path():
    text = changed(
        ("make: small", "make: large"),
        ("[2, 4, 5]", "[5, 4, 0]"),
        ("name: good", "nam: good"),
        ("num_key_value_heads: 4", "num_key_value_heads: 3"),
        ("source: {synthetic: 48}", 'source: {synthetic: 48}\n  max_tokens: "512"\n  limit: 3\n  held_out: 2'),
    )
    found = problems(text)
    places = [problem.split(": ", 2)[:2] for problem in found]
    assert places == [
        ["r.yaml:1", "name"],
        ["r.yaml:2", "nam"],
        ["r.yaml:5", "target.source.make"],
        ["r.yaml:7", "layers.aux"],
        ["r.yaml:10", "data.max_tokens"],
        ["r.yaml:11", "data.limit"],
        ["r.yaml:12", "data.held_out"],
        ["r.yaml:14", "train.draft.num_key_value_heads"],
    ]
    assert "did you mean `name`?" in found[1]


@pytest.mark.parametrize(
    ("before", "after", "where", "words"),
    [
        ("[2, 4, 5]", "[2, 2, 5]", "7: layers.aux", "named more than once"),
        ("[2, 4, 5]", "[0, 2, 5]", "7: layers.aux", "id 0 is the embeddings"),
        ("[2, 4, 5]", "[4, 2, 5]", "7: layers.aux", "write [2, 4, 5]"),
        ("[2, 4, 5]", "[2, 4]", "7: layers.aux[2]", "is missing"),
        ("num_key_value_heads: 4", "num_key_value_heads: 3", "11: train.draft.num_key_value_heads", "does not divide"),
        ("intermediate_size: 512", "intermediate_size: 512, head_dim: 33", "11: train.draft.head_dim", "is odd"),
        ("{synthetic: 48}", "{path: x}\n  limit: 40", "10: data.limit", "none is left to train on"),
        ("{synthetic: 48}", "{synthetic: 48}\n  limit: 60", "10: data.limit", "remove data.limit"),
        ("{synthetic: 48}", "{synthetic: 48}\n  answers: {}", "10: data.answers", "remove data.answers"),
        ("{synthetic: 48}", "{path: x}\n  answers: {max_tokens: 512}", "10: data.answers.max_tokens", "does not fit"),
        ("{synthetic: 48}", "{synthetic: 48}\n  held_out: 4", "10: data.held_out", "raise data.held_out"),
        ("\ntrain:", "\ntrain:\n  tokens_per_step: 256", "11: train.tokens_per_step", "cut it without a word"),
        ("\ntrain:", "\ntrain:\n  max_steps: 4\n  epochs: 2", "12: train.epochs", "remove one of the two"),
        ("\ntrain:", "\ntrain:\n  muon_lr: 3e-3", "11: train.muon_lr", "remove muon_lr"),
        ("\ntrain:", "\ntrain:\n  muon_weight_decay: 1", "11: train.muon_weight_decay", "remove muon_weight_decay"),
        ("synthetic: 48", "synthetic: 4", "9: data.source.synthetic", "lower validate.samples"),
        ("{make: small}", "{make: small}\n  load_format: dummy", "6: target.load_format", "against: null"),
    ],
)
def test_contradictions_name_the_key_to_change(before, after, where, words):
    (found,) = problems(changed((before, after)))
    assert found.startswith(f"r.yaml:{where}: ")
    assert words in found


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{mak: small}", "did you mean `make`?"),
        ("{make: small, path: x}", "make and path exclude each other"),
        ("small", "it is a mapping with one of these keys"),
        ("{}", "`hub: …`"),
        ("null", "is not a source"),
        ("{hub: a/b}", "target.source.revision: is missing"),
        ("{hub: a/b, revision: main}", "target.source.revision"),
        ("{make: small, sed: 3}", "did you mean `seed`?"),
    ],
)
def test_a_source_of_no_known_form_says_which_forms_there_are(source, words):
    (found,) = problems(changed(("{make: small}", source)))
    assert words in found
    assert found.startswith("r.yaml:5: target.source")
    assert "form:" not in found


def test_a_doubled_key_is_refused_with_both_lines():
    (found,) = problems(changed(("name: good", "name: good\nname: bad")))
    assert found.startswith("r.yaml:3: name: the key stands twice")
    assert "line 2" in found


@pytest.mark.parametrize("value", ["no", "on", "2026-01-01", "12:30", "1_000"])
def test_texts_that_yaml_1_1_turns_into_other_types_stay_texts(value):
    assert loads(changed(("extract: a", f"extract: {value}")), "r.yaml").stacks.extract == value


def test_a_number_with_an_exponent_is_a_number():
    assert loads(changed(("\ntrain:", "\ntrain:\n  lr: 3e-4")), "r.yaml").train.lr == 3e-4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("- a\n", "is a list"),
        ("just text", "is a text"),
        ("a: [1", "not YAML"),
        ("a: 1\n b: 2", "r.yaml:2: not YAML"),
        ("a: 1\n---\nb: 2", "not YAML"),
        ("\tname: x", "not YAML"),
    ],
)
def test_what_is_no_recipe_at_all_is_one_clear_error(text, words):
    with pytest.raises(RecipeError) as caught:
        loads(text, "r.yaml")
    assert words in str(caught.value)
    assert caught.value.code is ExitCode.RECIPE


@pytest.mark.parametrize("value", ["!!int abc", "!!float abc", "!!bool abc", "!!null abc", "!!int 1.5", "!!bool 1"])
def test_a_tag_that_its_value_is_not_is_told_by_its_line(value):
    (found,) = problems(changed(("synthetic: 48", f"synthetic: {value}")))
    assert found.startswith("r.yaml:9: data.source.synthetic: tag !!")
    assert "remove the tag" in found


def test_python_tags_are_not_obeyed():
    found = problems(changed(("name: good", "name: !!python/name:os.getcwd good")))
    assert "tag !!python/name:os.getcwd is not allowed" in found[0]


def test_a_missing_file_a_directory_and_bytes_that_are_no_text_are_told_apart(tmp_path: Path):
    broken = tmp_path / "b.yaml"
    broken.write_bytes(b"schema_version: 1\nname: \xff\n")
    for path, words in ((tmp_path / "none.yaml", "does not exist"), (tmp_path, "directory"), (broken, "b.yaml:2")):
        with pytest.raises(RecipeError, match=words):
            load(path)


@settings(deadline=None)
@given(st.text(max_size=300))
def test_no_text_raises_anything_but_a_recipe_error(text):
    with pytest.raises((RecipeError, ProblemsError)):
        loads(text, "r.yaml")


@settings(deadline=None)
@given(
    st.integers(0, len(GOOD)),
    st.sampled_from(["", "x", ":", "- ", "{", "]", "\n", "  ", "'", "&a ", "*a", "<<: ", "!"]),
)
def test_a_good_recipe_with_one_edit_is_read_or_refused_by_line(position, edit):
    try:
        loads(GOOD[:position] + edit + GOOD[position + 1 :], "r.yaml")
    except DraftkilnError as error:
        assert "r.yaml:" in str(error)


BOMB = "".join(f"{b}: &{b} [{', '.join([f'*{a}' if a else 'x'] * 10)}]\n" for a, b in ["-a", "ab", "bc", "cd"]).replace(
    "*-", "x"
)


@pytest.mark.parametrize(
    "text",
    ["target: &t {source: *t}", "target: " + "[" * 3000, BOMB + "e: [*d, *d, *d]"],
    ids=["inside itself", "deep", "millions"],
)
def test_yaml_without_end_is_refused(tmp_path, text):
    file = tmp_path / "r.yaml"
    file.write_text(text)
    with pytest.raises(RecipeError, match="not YAML"):
        load(file)


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ("\nname: good", '\nname: "\\ud800"', "2: name: "),
        ("{make: small}", '{path: "a\\udfff"}', "5: target.source.path: "),
        ("{make: small}", '{make: small}\n  template_arguments: {a: "\\ud800"}', "6: target.template_arguments.a: "),
        ("{make: small}", '{make: small}\n  template_arguments: {"\\ud83d": 1}', "6: target.template_arguments.?: "),
        ("{synthetic: 48}", '{several: [{path: a}, {path: "\\ud800"}]}', "9: data.source.several[1].path: "),
    ],
)
def test_half_a_character_is_a_problem_of_its_line(before, after, where):
    found = problems(changed((before, after)))
    assert found[0].startswith(f"r.yaml:{where}no file can hold this text")
    assert "a \\ud800 to \\udfff that stands alone" in found[0]
    "".join(found).encode()


@pytest.mark.parametrize("escape", ["\\U00110000", "\\UFFFFFFFF"])
def test_an_escape_that_no_character_has_is_told_by_its_line(escape):
    with pytest.raises(RecipeError, match=r"r\.yaml:5: not YAML") as caught:
        loads(changed(("{make: small}", f'{{path: "{escape}"}}')), "r.yaml")
    assert "an escape or a number is beyond all that there are" in caught.value.why


def test_a_replacement_character_is_a_character_as_any_other():
    recipe = loads(changed(("{make: small}", '{make: small}\n  must_be_single_token: {"\ufffd": 1, "?": 2}')), "r.yaml")
    assert recipe.target.must_be_single_token == {"\ufffd": 1, "?": 2}


def test_both_halves_of_a_character_are_that_character():
    recipe = loads(changed(("{make: small}", '{path: "a\\ud83d\\ude00"}')), "r.yaml")
    assert recipe.target.source.path == "a\U0001f600"


def test_a_number_beyond_all_numbers_is_refused(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("train:\n  lr: 1e999\n")
    with pytest.raises(ProblemsError, match="1e999 is too large a number"):
        load(file)


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        ("\ntrain:", "\ntrain:\n  epochs: 1" + "0" * 30, "11: train.epochs: "),
        ("\ntrain:", "\ntrain:\n  epochs: 1" + "0" * 5000, "11: train.epochs: a number of 5001 digits"),
        ("\ntrain:", "\ntrain:\n  epochs: -1", "11: train.epochs: "),
        ("\ntrain:", "\ntrain:\n  lr: 1e30", "11: train.lr: "),
        ("\ntrain:", "\ntrain:\n  tokens_per_step: 1" + "0" * 15, "11: train.tokens_per_step: "),
        ("\ntrain:", "\nevaluate:\n  num_draft_tokens: 1000000\ntrain:", "11: evaluate.num_draft_tokens: "),
        ("\ntrain:", "\nextract:\n  writers: 1000000\ntrain:", "11: extract.writers: "),
        ("{make: small}", "{make: small, seed: 1" + "0" * 12 + "}", "5: target.source.seed: "),
        ("[2, 4, 5]", "[2, 4, 5" + "0" * 12 + "]", "7: layers.aux[2]: "),
    ],
)
def test_a_number_that_is_a_slip_of_the_hand_is_an_ordinary_problem_of_its_line(before, after, where):
    (found,) = problems(changed((before, after)))
    assert found.startswith(f"r.yaml:{where}")


def test_a_huge_file_given_as_a_recipe_is_refused_by_its_size_before_it_is_read(tmp_path):
    file = tmp_path / "model.safetensors"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)  # a hole: whoever read it would run out of memory
    with pytest.raises(RecipeError, match=rf"it has {1 << 40} bytes"):
        load(file)
