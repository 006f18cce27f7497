"""The folder that the trainer reads: the prepared dataset and the extracted states under one root, by links."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from draftkiln import durable

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.train.vocabulary import Vocabulary

_STATE = "state.json"


def write(folder: Path, dataset: Path, hidden_states: Path, vocabulary: Vocabulary | None) -> None:
    """Write `folder` anew.

    Args:
        folder: what the trainer gets as its data path.
        dataset: the dataset that `prepare` wrote (datasets' on-disk format).
        hidden_states: the folder of `hs_{i}.safetensors` that `extract` wrote.
        vocabulary: the draft's, written as the trainer's `d2t-N.npy` and `t2d-N.npy`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in dataset.iterdir():
        if file.name != _STATE:
            (folder / file.name).symlink_to(file.resolve())
    # The trainer compares rows as tensors, so the dataset must give tensors whoever wrote it.
    state = json.loads((dataset / _STATE).read_text(encoding="utf-8"))
    durable.write_json(folder / _STATE, {**state, "_format_type": "torch", "_format_kwargs": {}})
    (folder / "hidden_states").symlink_to(hidden_states.resolve(), target_is_directory=True)
    if vocabulary is not None:
        import numpy as np

        size = len(vocabulary.targets)
        np.save(folder / f"d2t-{size}.npy", np.array(vocabulary.d2t, dtype=np.int64))
        np.save(folder / f"t2d-{size}.npy", np.array(vocabulary.t2d, dtype=bool))
