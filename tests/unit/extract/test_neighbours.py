"""The benchmark's other ways, with a stand-in for vLLM: how it is asked and how its files are judged."""

import fcntl
import json
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from draftkiln.errors import EngineError
from draftkiln.extract import engine, neighbours
from draftkiln.recipe.load import load

RECIPE = Path(__file__).parents[3] / "recipes" / "tiny-cpu.yaml"
PROMPTS = [[1, 2, 3], [4, 5]]


def lay(path, shape):
    entries = {"hidden_states": {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]}}
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


class StandIn:
    """vLLM's `LLM` with a connector that gives every file `slots` states and `missing` rows too few."""

    asked = None
    missing = 0
    write = staticmethod(lay)

    def __init__(self, **arguments):
        StandIn.asked = arguments
        self.llm_engine = types.SimpleNamespace(engine_core=types.SimpleNamespace(shutdown=lambda: None))
        self._folder = Path(arguments["kv_transfer_config"]["kv_connector_extra_config"]["shared_storage_path"])

    def generate(self, prompts, _sampling, *, use_tqdm):
        assert not use_tqdm
        slots = len(
            StandIn.asked["speculative_config"]["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"]
        )
        for number, prompt in enumerate(prompts):
            path = self._folder / f"{number}-ab.safetensors"
            StandIn.write(path, [len(prompt["prompt_token_ids"]) - StandIn.missing, slots, 16])
            yield types.SimpleNamespace(kv_transfer_params={"hidden_states_path": str(path)})


@pytest.fixture
def own(monkeypatch, tmp_path):
    stand_in = types.SimpleNamespace(LLM=StandIn, SamplingParams=dict, __version__="0.0")
    monkeypatch.setitem(sys.modules, "vllm", stand_in)
    facts = types.SimpleNamespace(hidden_size=16, num_layers=8)
    settings = engine.Settings(tmp_path / "target", facts, load(RECIPE), longest=512, dtype="float32")
    return neighbours.OwnPath(settings, (2, 4, 5), tmp_path)


def test_vllms_own_way_is_asked_for_the_layers_without_this_projects_worker(own):
    assert own.save(PROMPTS) >= 0
    asked = StandIn.asked
    assert "worker_extension_cls" not in asked
    assert asked["speculative_config"]["method"] == "extract_hidden_states"
    assert asked["max_model_len"] == 514
    assert asked["enable_prefix_caching"] is False


def test_files_with_rows_too_few_are_no_result(own, monkeypatch):
    monkeypatch.setattr(StandIn, "missing", 1)
    with pytest.raises(EngineError, match="for 3 tokens"):
        own.save(PROMPTS)


def test_files_that_threads_still_write_are_waited_for(own, monkeypatch, tmp_path):
    def late(path, shape):
        lock = (tmp_path / "own" / f"{path.name}.lock").open("wb")
        fcntl.flock(lock, fcntl.LOCK_EX)

        def write():
            time.sleep(0.2)
            lay(path, shape)
            lock.close()

        threading.Thread(target=write).start()

    monkeypatch.setattr(StandIn, "write", staticmethod(late))
    assert own.save(PROMPTS) >= 0.2
    assert list((tmp_path / "own").iterdir()) == []


def test_a_vllm_without_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", types.SimpleNamespace(__version__="0.16.0"))
    monkeypatch.setattr(neighbours.importlib.util, "find_spec", lambda _name: None)
    assert neighbours.own_path_missing() == "not in vLLM 0.16.0"
