"""Small packages that stand for speculators and for two builds of vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKER = """
import types
from vllm.models import supports_eagle3

def _forward(self, ids, positions):
    states = self.get_input_embeddings(ids)
    residual = None
    for layer in self.layers:
        states, residual = layer(positions=positions, hidden_states=states, residual=residual)
    return self.norm(states, residual)

class Extension:
    def _setup(self):
        model = self.model_runner.model
        if not supports_eagle3(model):
            raise ValueError("unsupported")
        base = model.model
        base._extension = self
        base.forward = types.MethodType(_forward, base)
"""
GENERATOR = """
from vllm.config import CacheConfig, SchedulerConfig
from vllm.kv import kv_config
from vllm.scheduler import Scheduler
from vllm.executor import Executor
from vllm.request import Request

class Generator:
    def __init__(self):
        self.config = SchedulerConfig(max_num_seqs=32)
        self.executor = Executor(extension="speculators.data_generation.custom_worker.Extension")
        kv = kv_config(groups=[], specs={}, memory=1)
        self.scheduler = Scheduler(config=self.config, kv=kv)

    def generate(self, ids):
        self.scheduler.add_request(Request(request_id="a", ids=ids))
        while (output := self.scheduler.schedule()).total > 0:
            states = self.executor.execute_model(output).states
        return self.executor.collective_rpc("_states", rank=0)[0]
"""
OLD = {
    "vllm/__init__.py": "",
    "vllm/config.py": "from pydantic.dataclasses import dataclass\n"
    "@dataclass\nclass CacheConfig:\n    block_size: int = 16\n"
    "@dataclass\nclass SchedulerConfig:\n    max_num_seqs: int = 128\n",
    "vllm/kv.py": "def kv_config(groups, specs, memory) -> dict: ...\n",
    "vllm/output.py": "class Output:\n    states: list\nclass Scheduled:\n    total: int\n",
    "vllm/scheduler.py": "from vllm.output import Scheduled\n"
    "class Scheduler:\n"
    "    def __init__(self, config, kv, log=False): ...\n"
    "    def add_request(self, request) -> None: ...\n"
    "    def schedule(self) -> Scheduled: ...\n",
    "vllm/executor.py": "from vllm.output import Output\n"
    "class Executor:\n"
    "    def __init__(self, extension): ...\n"
    "    def execute_model(self, output) -> Output: ...\n"
    "    def collective_rpc(self, method, rank=None) -> list: ...\n",
    "vllm/request.py": "class Request:\n    def __init__(self, request_id, ids, hasher=None): ...\n",
    "vllm/models.py": "class SupportsEagle3: ...\n"
    "def supports_eagle3(model): return isinstance(model, SupportsEagle3)\n",
    "vllm/v1/worker/gpu_worker.py": "class Runner:\n"
    "    def load(self):\n        self.model = load()\n"
    "class Worker:\n"
    "    def __init__(self):\n        self.model_runner = Runner()\n"
    "    def _states(self): ...\n",
    "vllm/model_executor/models/registry.py": "_MODELS = {'LlamaForCausalLM': ('llama', 'LlamaForCausalLM')}\n",
    "vllm/model_executor/models/llama.py": "from torch import nn\n"
    "from vllm.models import SupportsEagle3\n"
    "class Layer(nn.Module):\n    def forward(self, positions, hidden_states, residual): ...\n"
    "class LlamaModel(nn.Module):\n"
    "    def __init__(self):\n"
    "        self.start, self.end, self.layers = make_layers(2, lambda prefix: Layer())\n"
    "        self.norm = Norm()\n"
    "    def get_input_embeddings(self, ids): ...\n"
    "class LlamaForCausalLM(nn.Module, SupportsEagle3):\n"
    "    def __init__(self):\n        self.model = LlamaModel()\n",
}


def _changed(changes: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    files = dict(OLD)
    for name, (before, after) in changes.items():
        assert before in files[name]
        files[name] = files[name].replace(before, after)
    return files


NEW = _changed(
    {
        "vllm/config.py": ("max_num_seqs: int = 128", "is_encoder_decoder: bool\n    max_num_seqs: int = 128"),
        "vllm/kv.py": ("groups, specs, memory", "groups, memory"),
        "vllm/scheduler.py": ("config, kv, log", "config, kv, block_size, log"),
        "vllm/request.py": ("hasher=None", "hasher"),
        "vllm/executor.py": (
            "-> Output: ...\n    def collective_rpc(self, method, rank=None) -> list",
            "-> None: ...\n    def collective_rpc(self, method, rank=None) -> Output",
        ),
        "vllm/model_executor/models/llama.py": ("get_input_embeddings", "embed_input_ids"),
    }
)
"""`OLD` with the seven moves of one real step of vLLM."""
