"""`made_up.fill` on a module with the names and types that vLLM's models have."""

import torch

from draftkiln.extract import made_up


def module():
    """A layer of Kimi's kind, as vLLM leaves it with `load_format: dummy`."""
    tensors = {
        "layers.0.input_layernorm.weight": torch.full((8,), 1e-4),
        "layers.0.self_attn.kv_a_layernorm.weight": torch.full((4,), -1e-4),
        "layers.0.self_attn.o_proj.weight": torch.full((8, 8), 1e-4),
        "layers.0.mlp.experts.w13_weight_packed": torch.zeros((2, 4, 8), dtype=torch.int32),
        "layers.1.mlp.experts.w13_weight_packed": torch.zeros((2, 4, 8), dtype=torch.int32),
        "layers.0.mlp.experts.w13_g_idx": torch.arange(8, dtype=torch.int32),
    }

    class Model(torch.nn.Module):
        def named_parameters(self):
            return iter(tensors.items())

    return Model(), tensors


one, found = module()
other, again = module()
assert made_up.fill(one) == made_up.fill(other) == 4
assert all(torch.equal(found[name], again[name]) for name in found)
for name, tensor in found.items():
    if "norm" in name:
        assert tensor.eq(1).all(), name
first, second = (found[f"layers.{layer}.mlp.experts.w13_weight_packed"] for layer in (0, 1))
assert first.unique().numel() > 60
assert first.min() < 0 < first.max()
assert not torch.equal(first, second)
assert found["layers.0.self_attn.o_proj.weight"].eq(1e-4).all()
assert found["layers.0.mlp.experts.w13_g_idx"].tolist() == list(range(8))
