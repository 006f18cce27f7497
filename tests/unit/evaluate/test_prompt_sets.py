from pathlib import Path

import pytest

from draftkiln.errors import DataError, EvaluationError
from draftkiln.evaluate import prompts


def test_token_ids_and_messages_are_prompts(tmp_path: Path) -> None:
    file = tmp_path / prompts.HELD_OUT
    file.write_text('{"prompt_token_ids": [1, 2]}\n\n{"messages": [{"role": "user", "content": "x"}]}\n')
    assert len(prompts.read(file, 5)) == 2
    assert prompts.token_ids(prompts.read(file, 1), tmp_path, trust_remote_code=False) == [[1, 2]]


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_prompt_set_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / prompts.HELD_OUT
    file.write_text(text)
    with pytest.raises(EvaluationError, match="no prompts"):
        prompts.read(file, 5)


def test_a_missing_prompt_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="is not there"):
        prompts.read(tmp_path / prompts.HELD_OUT, 5)


@pytest.mark.parametrize("line", ["{", "[1]", "{}", '{"prompt_token_ids": []}'])
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / prompts.HELD_OUT
    file.write_text('{"prompt_token_ids": [1]}\n' + line + "\n")
    with pytest.raises(DataError, match=r"held_out\.jsonl:2"):
        prompts.read(file, 5)


def test_the_hash_depends_on_ids_and_order() -> None:
    assert prompts.sha256([[1], [2]]) != prompts.sha256([[2], [1]])
