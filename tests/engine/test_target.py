"""Made targets on the engines of both stacks and under both releases of transformers."""

import json
import random
import shutil
import sys
from pathlib import Path

import pytest

from draftkiln.target import language
from draftkiln.target.make import make

sys.path.insert(0, str(Path(__file__).parent))
import stacks

pytestmark = pytest.mark.engine
PROGRAMS = Path(__file__).parent / "programs"
BOTH = pytest.mark.parametrize("stack", [stacks.EXTRACT, stacks.TRAIN])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make("small", 17, tmp_path_factory.mktemp("targets") / "small")


def outcome(stack, program, model, tmp_path, text=""):
    done = stacks.run(stack, [PROGRAMS / program, model, tmp_path / "out.json"], text=text)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((tmp_path / "out.json").read_text())


@BOTH
def test_the_engine_answers_as_the_closed_form_says(stack, small, tmp_path):
    source = random.Random(11)
    prompts = [[source.randrange(len(language.TOKENS)) for _ in range(length)] for length in (1, 3, 9, 30, 200)]
    found = outcome(stack, "target_generate.py", small, tmp_path, json.dumps(prompts))
    assert found["tokens"] == [language.continuation(prompt, 48) for prompt in prompts]
    assert found["text"].strip() == language.words(found["tokens"][0])
    assert found["margin"] > 2


@BOTH
def test_transformers_computes_the_closed_form_and_layers_differ(stack, small, tmp_path):
    found = outcome(stack, "target_reference.py", small, tmp_path)
    assert found["predicted"] == found["expected"]
    assert found["margin"] > 2
    assert max(found["cosines"].values()) < 0.995
    assert found["cosines"]["4-5"] < 0.99
    assert found["trained"] == 6
    assert found["words"]
    assert found["prompt"].endswith("<|im_assistant|> assistant <|im_middle|>")


def test_case_53_weights_under_an_unknown_prefix_are_refused_by_naming_some(small, tmp_path):
    folder = tmp_path / "renamed"
    shutil.copytree(small, folder)
    (folder / "model.safetensors.index.json").unlink()
    (file,) = folder.glob("*.safetensors")
    file.write_bytes(file.read_bytes().replace(b'"language_model.model.', b'"language_model.other.'))
    done = stacks.run(stacks.TRAIN, [PROGRAMS / "target_reference.py", folder, tmp_path / "out.json"])
    assert "weights of its text part are missing, such as model.embed_tokens.weight" in done.stderr
    assert "other.embed_tokens.weight" in done.stderr
