"""A stand-in for vLLM that answers in no time, or does not: what is around the engine is tested, not the engine."""

from pathlib import Path

import pytest

VLLM = """
import os, subprocess, sys, time
__version__ = "stub"
BEHAVIOUR = os.environ.get("STUB", "")
ENGINES = []
print("vllm is imported", flush=True)

class SamplingParams:
    def __init__(self, **values):
        self.__dict__.update(values)

class Counter:
    def __init__(self, name, value):
        self.name, self.value = name, value

class Vector:
    def __init__(self, name, values):
        self.name, self.values = name, values

class Output:
    def __init__(self, ids):
        self.outputs = [type("Text", (), {"token_ids": ids, "text": " ".join(map(str, ids))})()]

class LLM:
    def __init__(self, **arguments):
        self.draft, self.calls, self.drafts = arguments.get("speculative_config"), 0, 0
        ENGINES.append(self)
        print("engine", len(ENGINES), os.getpid(), os.getppid(), flush=True)
        if BEHAVIOUR == "no start":
            raise RuntimeError("no room for the KV cache")

    def generate(self, prompts, parameters, use_tqdm):
        self.calls += 1
        if self.calls == 2 and BEHAVIOUR == "dies" and self.draft:
            print("ValueError: the worker is gone", file=sys.stderr, flush=True)
            os._exit(9)
        if self.calls == 2 and BEHAVIOUR == "is killed":
            print("Killed", flush=True)
            os.kill(os.getpid(), 9)
        if self.calls == 2 and BEHAVIOUR == "hangs":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "outlives its engine"])
            time.sleep(600)
        if not isinstance(parameters, list):
            parameters = [parameters] * len(prompts)
        self.drafts += 10 * len(prompts)
        made = []
        for prompt, one in zip(prompts, parameters):
            ids = [prompt["prompt_token_ids"][0] + place for place in range(one.max_tokens)]
            if one.temperature:
                ids[-1] = one.seed
            if BEHAVIOUR == "lossy" and self.draft and prompt["prompt_token_ids"][0] == 5:
                ids[2] = 77
            made.append(Output(ids))
        return made

    def get_metrics(self):
        shares = [self.drafts * 8 // 10, self.drafts // 2, self.drafts // 5]
        return [
            Counter("vllm:spec_decode_num_drafts", self.drafts),
            Counter("vllm:spec_decode_num_accepted_tokens", self.drafts * 3 // 2),
            Vector("vllm:spec_decode_num_accepted_tokens_per_pos", shares),
            Counter("vllm:num_requests_running", 0),
        ]
"""


TRANSFORMERS = """
class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, folder, trust_remote_code):
        return cls()

    def apply_chat_template(self, messages, add_generation_prompt, tokenize, return_dict, thinking=True):
        assert (add_generation_prompt, tokenize, return_dict) == (True, True, False)
        return [int(word) for message in messages for word in message["content"].split()][-1:] + [int(thinking)]
"""


@pytest.fixture
def stub_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in on the path of child processes, and give a folder with a target's config."""
    (tmp_path / "packages" / "vllm").mkdir(parents=True)
    (tmp_path / "packages" / "vllm" / "__init__.py").write_text(VLLM)
    (tmp_path / "packages" / "transformers.py").write_text(TRANSFORMERS)
    source = Path(__file__).parents[3] / "src"
    monkeypatch.setenv("PYTHONPATH", f"{source}:{tmp_path / 'packages'}")
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text("{}")
    return target
