"""A vision tower of one tiny layer: made targets are used for text, but the engines build and load the tower."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from draftkiln.target import bits
from draftkiln.target.layers import ones
from draftkiln.target.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from draftkiln.target.shape import Shape

PATCH, GRID, MERGE, HEADS, INNER = 14, 4, 2, 2, 64


def vision_tensors(shape: Shape, seed: int) -> Iterator[Tensor]:
    """Tensors of `vision_tower.*` and `mm_projector.*`."""
    width = shape.vision_hidden_size
    merged = width * MERGE * MERGE
    block = "vision_tower.encoder.blocks.0"
    for name, rows, columns in (
        ("vision_tower.patch_embed.proj", width, (3, PATCH, PATCH)),
        (f"{block}.wqkv", 3 * width, (width,)),
        (f"{block}.wo", width, (width,)),
        (f"{block}.mlp.fc0", INNER, (width,)),
        (f"{block}.mlp.fc1", width, (INNER,)),
        ("mm_projector.proj.0", merged, (merged,)),
        ("mm_projector.proj.2", shape.hidden_size, (merged,)),
    ):
        size = (rows, *columns)
        std = float(np.prod(columns)) ** -0.5
        yield Tensor(f"{name}.weight", size, partial(bits.uniform, f"{seed}/{name}", size, std))
        yield Tensor(f"{name}.bias", (rows,), partial(np.zeros, (rows,), "<u2"))
    position = (GRID, GRID, width)
    build = partial(bits.uniform, f"{seed}/vision/position", position, 0.02)
    yield Tensor("vision_tower.patch_embed.pos_emb.weight", position, build)
    for name in (f"{block}.norm0", f"{block}.norm1", "vision_tower.encoder.final_layernorm", "mm_projector.pre_norm"):
        yield Tensor(f"{name}.weight", (width,), partial(ones, (width,)))
        yield Tensor(f"{name}.bias", (width,), partial(np.zeros, (width,), "<u2"))
