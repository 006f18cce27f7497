"""Compute hidden states with transformers, in float32, on the weights that the engine serves.

Run by a stack's Python: `reference.py TARGET SAMPLES.json OUT.safetensors`. SAMPLES maps a call's name to its lists of
token ids. OUT holds `CALL/INDEX`, `[layers + 1, tokens, hidden]` float32: row k is the stream after k decoder layers,
the last one before the final norm.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM


def states_of(model: torch.nn.Module, token_ids: list[int]) -> torch.Tensor:
    """Return the stream before the first and after each layer, `[layers + 1, tokens, hidden]`."""
    streams: list[torch.Tensor] = []
    hooks = [
        layer.register_forward_hook(
            lambda _layer, _args, output: streams.append(output[0] if isinstance(output, tuple) else output)
        )
        for layer in model.model.layers
    ]
    with torch.inference_mode():
        ids = torch.tensor([token_ids])
        embedded = model.model.embed_tokens(ids)
        model.model(input_ids=ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return torch.stack([embedded[0], *(stream.reshape(embedded.shape)[0] for stream in streams)])


def main() -> None:
    """Write the states of every sample."""
    target, samples, out = sys.argv[1:]
    model = AutoModelForCausalLM.from_pretrained(target, torch_dtype=torch.float32).eval()
    calls = json.loads(Path(samples).read_text())
    save_file(
        {
            f"{name}/{index}": states_of(model, token_ids).contiguous()
            for name, batch in calls.items()
            for index, token_ids in enumerate(batch)
        },
        out,
    )


if __name__ == "__main__":
    main()
