"""The worker's side of an extraction on a CUDA device, without vLLM: `python tests/gpu/sink_on_cuda.py DIR`.

Steps of stand-in layers (matrix products of a real step's length, random states) go through the real extension, its
side stream, pinned blocks and writers. Every file is compared, byte for byte, with what the states were; then the same
steps run with and without the sink. Prints one JSON object. It needs torch with CUDA, safetensors, xxhash, filelock.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import sys
import time
import types
from pathlib import Path

import numpy as np
import torch

HIDDEN = 7168
LAYERS = (1, 29, 57)
SAMPLE = 512


def stand_ins() -> None:
    """Modules that the extension imports: one rank, and a capture that keeps what a layer gives."""

    class Capture:
        def _setup_hidden_states_capture(self, layer_ids):
            self._layer_ids, self._step_states = sorted(layer_ids), {}

        def _capture_layer(self, layer_id, _layer, _args, output):
            self._step_states[layer_id] = output[0] + output[1]

    distributed = types.ModuleType("vllm.distributed")
    distributed.get_tp_group = lambda: types.SimpleNamespace(rank_in_group=0)
    worker = types.ModuleType("speculators.data_generation.custom_worker")
    worker.HiddenStatesWorkerExtension = Capture
    for name in ("vllm", "speculators", "speculators.data_generation"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["vllm.distributed"] = distributed
    sys.modules["speculators.data_generation.custom_worker"] = worker


class Batch:
    """What the model runner knows of a step: whole samples of `SAMPLE` tokens."""

    def __init__(self, first, count):
        self.req_ids = [str(first + number) for number in range(count)]
        self.num_computed_tokens_cpu = np.zeros(count, dtype=np.int32)
        self.num_prompt_tokens = np.full(count, SAMPLE)
        self.token_ids_cpu = np.stack([token_ids(first + number) for number in range(count)])
        self.bounds = np.arange(count + 1) * SAMPLE


def token_ids(index):
    return np.arange(SAMPLE, dtype=np.int32) + index


class Model(torch.nn.Module):
    """Products that keep the device busy for about as long as a real step, and states that differ in every row."""

    def __init__(self, tokens, milliseconds):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(HIDDEN, HIDDEN, device="cuda", dtype=torch.bfloat16) / HIDDEN**0.5)
        self.start = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.products = 1
        for _ in range(2):
            seconds = timed(lambda: self.busy(20)) / 20
        self.products = max(3, round(milliseconds / 1000 / seconds))

    def busy(self, products):
        state = self.start
        for _ in range(products):
            state = state @ self.weight
        return state

    def forward(self, step):
        state = self.start + step
        third = self.products // len(LAYERS)
        for number, layer in enumerate(LAYERS):
            for _ in range(third):
                state = state @ self.weight
            yield layer, self.parts(step, number)

    def parts(self, step, number):
        """Hidden states and residual, as vLLM's layers give them."""
        return self.start, self.start.new_full((1, 1), 10 * step + number).expand_as(self.start)


def timed(work):
    torch.cuda.synchronize()
    began = time.monotonic()
    work()
    torch.cuda.synchronize()
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--step-tokens", type=int, default=8192)
    parser.add_argument("--milliseconds", type=float, default=32.0)
    parser.add_argument("--writers", type=int, nargs="+", default=[4, 8, 12])
    parser.add_argument("--storage", choices=("bfloat16", "float8_e4m3fn"), default="bfloat16")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    stand_ins()
    from draftkiln.extract.worker import SinkExtension

    count = arguments.step_tokens // SAMPLE
    model = Model(arguments.step_tokens, arguments.milliseconds)
    tokens = arguments.steps * arguments.step_tokens

    def steps(extension):
        for step in range(arguments.steps):
            if extension is not None:
                batch = Batch(step * count, count)
                extension.model_runner.input_batch = batch
                extension.model_runner.query_start_loc = types.SimpleNamespace(np=batch.bounds)
            for layer, output in model(step):
                if extension is not None:
                    extension._capture_layer(layer, None, (), output)
            # The engine waits for the sampled token, so for its own stream; not for copies on others.
            torch.cuda.current_stream().synchronize()

    def plain():
        return tokens / timed(lambda: steps(None))

    def extract(extension, folder, writers):
        folder.mkdir(parents=True)
        cpus = sorted(os.sched_getaffinity(0))
        size = HIDDEN, writers, arguments.step_tokens
        extension._sink_open(
            list(LAYERS), str(folder), *size, os.getpid(), socket.gethostname(), cpus, arguments.storage
        )
        closed = {}

        def work():
            steps(extension)
            closed.update(extension._sink_close())

        rate = tokens / timed(work)
        assert closed["failure"] is None, closed["failure"]
        return rate, closed["receipts"]

    extension = SinkExtension()
    extension.model_runner = types.SimpleNamespace(model=model)
    result = {"device": torch.cuda.get_device_name(), "tokens": tokens, "products": model.products, "rates": {}}
    first = arguments.folder / "check"
    rate, receipts = extract(extension, first, arguments.writers[-1])
    result["equal"] = check(first, model, count, receipts, arguments.steps)
    shutil.rmtree(first)
    rates = result["rates"]
    for number in range(arguments.rounds):
        rates.setdefault("plain", []).append(round(plain()))
        for writers in arguments.writers:
            folder = arguments.folder / f"round-{number}-{writers}"
            rate, _ = extract(extension, folder, writers)
            rates.setdefault(f"sink, {writers} writers", []).append(round(rate))
            shutil.rmtree(folder)
    middle = statistics.median(rates["plain"])
    result["ratios"] = {name: round(statistics.median(found) / middle, 3) for name, found in rates.items()}
    print(json.dumps(result))


def check(folder, model, count, receipts, steps):
    """Number of samples whose bytes, ids and checksums are what they must be; every one, or an assertion fails."""
    from safetensors.torch import load_file

    from draftkiln.extract import samples

    told = {receipt[0]: receipt for receipt in receipts}
    assert sorted(told) == list(range(steps * count))
    for index in sorted(told):
        path = folder / samples.name(index)
        found = load_file(path)
        step, at = divmod(index, count)
        rows = slice(at * SAMPLE, (at + 1) * SAMPLE)
        parts = [model.parts(step, number) for number in range(len(LAYERS))]
        wanted = torch.stack([states[rows] + residual[rows] for states, residual in parts], dim=1)
        assert equal(found, wanted), index
        assert found["token_ids"].tolist() == token_ids(index).tolist(), index
        assert told[index][1:4] == [SAMPLE, path.stat().st_size, samples.checksum(path)], index
    return len(told)


def equal(found, wanted):
    """Byte for byte; in FP8 what hs_connectors would have made of the states."""
    if "hidden_states_scales" not in found:
        return torch.equal(found["hidden_states"], wanted.cpu())
    scales = (wanted.float().abs().amax(dim=(1, 2), keepdim=True) / 448).clamp(min=1e-12)
    codes = (wanted.float() / scales).to(torch.float8_e4m3fn)
    same = torch.equal(found["hidden_states"].view(torch.uint8), codes.cpu().view(torch.uint8))
    return same and torch.equal(found["hidden_states_scales"], scales.cpu())


if __name__ == "__main__":
    main()
