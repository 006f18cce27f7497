"""Further turns in the template of a target whose answers come in channels, with the real libraries."""

import json
from pathlib import Path

import pytest

from draftkiln.evaluate import prompts

pytestmark = pytest.mark.engine
PRESETS = Path(__file__).parents[1] / "data" / "presets"


def test_a_second_turn_of_gpt_oss_holds_the_final_answer_and_none_of_the_reasoning() -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    bytes_alone = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    core = Tokenizer(models.BPE(bytes_alone, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = json.loads((PRESETS / "gptoss.json").read_text())["specials"]
    core.add_special_tokens([AddedToken(text, special=True) for text in special])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)
    tokenizer.chat_template = (PRESETS / "gptoss.jinja").read_text()

    answer = (
        "<|channel|>analysis<|message|>They ask why.<|end|><|start|>assistant<|channel|>final<|message|>So.<|return|>"
    )
    ids = tokenizer(answer, add_special_tokens=False)["input_ids"]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    assert text == "analysisThey ask why.assistantfinalSo."  # what engines give, and what was sent back before
    first = [{"role": "user", "content": "Why?"}]
    asked = prompts.with_answers(first, [prompts.said(ids, text, tokenizer)], ["How?"])
    written = tokenizer.decode(prompts.written_out(asked, tokenizer, {}))
    assert written.endswith(
        "<|start|>user<|message|>Why?<|end|><|start|>assistant<|channel|>final<|message|>So.<|end|>"
        "<|start|>user<|message|>How?<|end|><|start|>assistant"
    )
