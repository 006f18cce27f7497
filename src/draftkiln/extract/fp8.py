"""States in 8 bits: float8_e4m3fn with one scale a token over all slots, as speculators' `fp8` backend reads them.

Source: hs_connectors 0.9.0, fp8_utils.py. One scale for all slots of a token is that layout's choice: where the last
layers are much larger than the first, the first lose most. What is lost is measured on the first rows of a run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

_CODE = torch.float8_e4m3fn
_LARGEST = torch.finfo(_CODE).max
_LEAST_SCALE = 1e-12
_ROWS = 1024
"""Rows that are converted at a time: a step in float32 would take twice its own memory."""


@dataclass(frozen=True)
class Loss:
    """What the storage loses of one slot.

    Attributes:
        error: root mean square of the difference over that of the states.
        min_cosine: least cosine between a row and what is read back.
    """

    error: float
    min_cosine: float


def quantize(states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes `[rows, slots, hidden]` in float8_e4m3fn and scales `[rows]` in float32 of states of that shape."""
    codes = torch.empty(states.shape, dtype=_CODE, device=states.device)
    scales = torch.empty(len(states), dtype=torch.float32, device=states.device)
    for at in range(0, len(states), _ROWS):
        part = states[at : at + _ROWS].float()
        scale = (part.abs().amax(dim=(1, 2)) / _LARGEST).clamp(min=_LEAST_SCALE)
        codes[at : at + _ROWS] = (part / scale[:, None, None]).to(_CODE)
        scales[at : at + _ROWS] = scale
    return codes, scales


def restore(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """States in bfloat16 as the trainer gets them."""
    return codes.to(torch.bfloat16) * scales.to(torch.bfloat16)[:, None, None]


def loss(states: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> list[Loss]:
    """What is lost, slot by slot."""
    wanted, found = states.float(), restore(codes, scales).float()
    cosine = torch.nn.functional.cosine_similarity(wanted, found, dim=-1).amin(dim=0)
    error = (found - wanted).square().mean(dim=(0, 2)).sqrt() / wanted.square().mean(dim=(0, 2)).sqrt()
    return [Loss(*values) for values in zip(error.tolist(), cosine.tolist(), strict=True)]
