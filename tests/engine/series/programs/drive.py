"""Run the generator of several speculators trees in one process, over a stub model: seconds a scenario, no weights.

Run by a stack's Python: `drive.py TARGETS SCENARIOS.json OUTCOMES.json`. Configuration, scheduler, block pool, worker
extension and its hooks are the real ones; the executor and its model runner are stubs. A row of the stub's stream
says where it comes from: `[token, position, sum of 10**i over the layers that it passed]`.
"""

import importlib
import json
import logging
import sys
import traceback
import types
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput

LAYERS = 5
GENERATOR = "speculators.data_generation.vllm_hidden_states_generator"
WORKER = "speculators.data_generation.custom_worker"


class Layer(torch.nn.Module):
    """A decoder layer as vLLM's are: the residual is written in place, the sum is left to the next norm."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, positions, hidden_states, residual, llama_4_scaling=None):
        residual = hidden_states if residual is None else residual.add_(hidden_states)
        return self.step(hidden_states), residual

    def step(self, like: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(like)
        out[:, 2] = 10**self.index
        return out


class KeywordLayer(Layer):
    """Keyword-only names, and a fourth value that the model's own forward hands on."""

    def forward(self, *, positions, hidden_states, residual, llama_4_scaling):
        hidden_states, residual = super().forward(positions, hidden_states, residual)
        return hidden_states * llama_4_scaling, residual


class SingleTensorLayer(Layer):
    """Takes no residual and returns the stream alone."""

    def forward(self, positions, hidden_states):
        return hidden_states + self.step(hidden_states)


class NoResidualLayer(Layer):
    """Takes a residual and returns none."""

    def forward(self, positions, hidden_states, residual):
        return hidden_states + self.step(hidden_states), None


class Decoder(torch.nn.Module):
    """A stack of layers with a forward of its own."""

    def __init__(self, layer: type[Layer]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layer(index) for index in range(LAYERS))
        self.norm = torch.nn.Identity()
        self.start_layer, self.end_layer = 0, LAYERS

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> None:
        hidden_states, residual = torch.stack([tokens, positions, 0 * tokens], dim=1).double(), None
        for layer in self.layers:
            if isinstance(layer, SingleTensorLayer):
                hidden_states = layer(positions, hidden_states)
            elif isinstance(layer, KeywordLayer):
                hidden_states, residual = layer(
                    positions=positions, hidden_states=hidden_states, residual=residual, llama_4_scaling=1.0
                )
            else:
                hidden_states, residual = layer(positions, hidden_states, residual)
        if residual is not None:  # as the final norm does: what was captured must be a copy by now
            residual.add_(hidden_states)
            hidden_states.zero_()


def served(architecture: str, decoder: torch.nn.Module) -> torch.nn.Module:
    """Return vLLM's class of that name around `decoder`, without its weights."""
    from vllm.model_executor.models import ModelRegistry

    def bare(name: str, **parts: torch.nn.Module) -> torch.nn.Module:
        cls = ModelRegistry._try_load_model_cls(name)
        module = cls.__new__(cls)
        torch.nn.Module.__init__(module)
        for key, part in parts.items():
            setattr(module, key, part)
        return module

    if architecture == "KimiK25ForConditionalGeneration":
        return bare(architecture, language_model=bare("DeepseekV3ForCausalLM", model=decoder))
    return bare(architecture, model=decoder)


class StubExecutor:
    """Answers as the multiprocess executor of one worker does, from a runner that lays requests out backwards."""

    def __init__(self, worker_module: types.ModuleType, options: dict[str, Any]) -> None:
        self.options = options
        layer = globals()[options.get("layer", "Layer")]
        self.decoder = torch.nn.Linear(1, 1) if options.get("no_layers") else Decoder(layer)
        model = served(options.get("architecture", "DeepseekV3ForCausalLM"), self.decoder)
        worker_module.get_tp_group = lambda: types.SimpleNamespace(rank_in_group=0)
        self.worker = worker_module.HiddenStatesWorkerExtension()
        batch = types.SimpleNamespace(req_id_to_index={})
        self.worker.model_runner = types.SimpleNamespace(model=model, input_batch=batch)
        self.prompts: dict[str, list[int]] = {}
        self.output: ModelRunnerOutput | None = None
        self.steps: list[dict[str, int]] = []

    def determine_available_memory(self) -> list[int]:
        return [self.options.get("memory", 1 << 30)]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [["LBNHC"]]

    def set_kv_cache_layout(self, _name: str) -> None:
        pass

    def initialize_from_config(self, _configs: list[Any]) -> None:
        if not self.options.get("no_layers"):  # the warm-up pass
            self.decoder(torch.arange(4), torch.arange(4))

    def shutdown(self) -> None:
        pass

    def collective_rpc(self, method: str, args: tuple = (), unique_reply_rank: int | None = None) -> Any:
        if method == "get_kv_cache_spec":
            spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=64, dtype=torch.bfloat16)
            return [{f"layers.{index}": spec for index in range(LAYERS)}]
        reply = getattr(self.worker, method)(*args)
        if unique_reply_rank is None:
            return [reply]
        shape = self.options.get("replies", "bare")
        return {
            "bare": lambda: reply,
            "nested": lambda: [[reply]],
            "second": lambda: [None, reply],
            "none": lambda: [None, None],
        }.get(shape, lambda: [reply, *[None] * (int(shape) - 1)])()

    def execute_model(self, scheduler_output: Any) -> ModelRunnerOutput | None:
        for request_id in scheduler_output.finished_req_ids:
            self.prompts.pop(request_id, None)
        counts = scheduler_output.num_scheduled_tokens
        if not counts:
            return ModelRunnerOutput(req_ids=[], req_id_to_index={})
        starts = {}
        for new in scheduler_output.scheduled_new_reqs:
            self.prompts[new.req_id] = new.prompt_token_ids
            starts[new.req_id] = new.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        starts.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        if len(self.steps) == self.options.get("fail_at_step"):
            self.steps.append({})
            raise AssertionError
        self.steps.append(dict(counts))
        order = list(reversed(counts))
        rows = [
            (self.prompts[request_id][position], position)
            for request_id in order
            for position in range(starts[request_id], starts[request_id] + counts[request_id])
        ]
        padding = [(-1, -1)] * self.options.get("padding", 0)
        tokens, positions = torch.tensor([*rows, *padding]).T
        index = {request_id: place for place, request_id in enumerate(order)}
        self.worker.model_runner.input_batch.req_id_to_index = index
        self.decoder(tokens, positions)
        self.output = ModelRunnerOutput(req_ids=order, req_id_to_index=index)
        return None

    def sample_tokens(self, _grammar: None) -> ModelRunnerOutput | None:
        output, self.output = self.output, None
        return output


@contextmanager
def imported(tree: str) -> Any:
    """Import generator and worker of `tree`, and forget them afterwards."""
    sys.path.insert(0, tree)
    try:
        yield importlib.import_module(GENERATOR), importlib.import_module(WORKER)
    finally:
        sys.path.remove(tree)
        for name in [name for name in sys.modules if name.split(".")[0] == "speculators"]:
            del sys.modules[name]
        importlib.invalidate_caches()


def attempt(action: Any) -> dict[str, Any]:
    """Return what `action` returns, or the error that it raises."""
    try:
        return {"value": action()}
    except Exception as error:  # noqa: BLE001 - the error is the result
        return {"error": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}


def play(targets: Path, scenario: dict[str, Any]) -> dict[str, Any]:
    """Build a generator as the scenario says and make its calls."""
    outcome: dict[str, Any] = {"calls": []}
    with imported(scenario["tree"]) as (module, worker_module):
        module.MultiprocExecutor = lambda **_: StubExecutor(worker_module, scenario.get("executor", {}))
        log = StringIO()
        module.log.logger.addHandler(logging.StreamHandler(log))
        built: list[Any] = []
        arguments = {"model_path": str(targets / scenario["target"]), "layer_ids": [3, 0, 4], "max_model_len": 64}

        def start() -> None:
            built.append(module.VllmHiddenStatesGenerator(**(arguments | scenario.get("generator", {}))))

        outcome["start"] = attempt(start)
        for samples in scenario.get("calls", []) if built else []:
            result = attempt(lambda samples=samples: built[0].generate(samples))
            if "value" in result:
                result["value"] = [
                    {"ids": one["input_ids"].tolist(), "states": [h.tolist() for h in one["hidden_states"]]}
                    for one in result["value"]
                ]
            outcome["calls"].append(result)
        if built:
            outcome["steps"] = built[0].executor.steps
            outcome["remembered"] = sorted(built[0].executor.prompts)
            outcome["log"] = log.getvalue()
    return outcome


def main() -> None:
    """Play every scenario."""
    targets, scenarios, outcomes = map(Path, sys.argv[1:])
    played = {name: play(targets, scenario) for name, scenario in json.loads(scenarios.read_text()).items()}
    outcomes.write_text(json.dumps(played))


if __name__ == "__main__":
    main()
