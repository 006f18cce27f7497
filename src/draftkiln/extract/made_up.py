"""Weights that an engine made up (`load_format: dummy`), as numbers that flow.

vLLM gives every float a value within 0.001 and leaves packed integers as the memory was: norms then shrink what goes
through them a thousandfold, each layer's share is lost in rounding, and the states of all layers look alike. Norms of
one and random integers keep shapes, kernels and speed, and the states differ from layer to layer as real ones do.
"""

from __future__ import annotations

import re
import zlib

import torch

_NORM = re.compile(r"norm\d*\.weight$")
_PACKED = re.compile(r"(weight_packed|qweight)$")


@torch.no_grad()  # type: ignore[untyped-decorator]  # torch is not there where types are checked
def fill(model: torch.nn.Module) -> int:
    """Set norms to one and packed integers to bits drawn by the tensor's name, alike on every rank and at every start.

    Returns:
        Tensors that were set.
    """
    count = 0
    for name, weight in model.named_parameters():
        if _NORM.search(name) and weight.dim() == 1:
            weight.fill_(1)
        elif _PACKED.search(name) and not weight.dtype.is_floating_point:
            bits = torch.iinfo(weight.dtype)
            drawn = torch.Generator(device=weight.device).manual_seed(zlib.crc32(name.encode()))
            weight.random_(bits.min, bits.max, generator=drawn)
        else:
            continue
        count += 1
    return count
