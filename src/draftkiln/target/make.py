"""Write a made target: a Kimi-K2.5-shaped model whose next token follows a known rule."""

from __future__ import annotations

import shutil
import tempfile
from importlib import resources
from pathlib import Path

from draftkiln import durable
from draftkiln.errors import TargetError
from draftkiln.target import model_config, tokenizer
from draftkiln.target.layers import all_tensors
from draftkiln.target.record import write_record
from draftkiln.target.shape import GENERATION, SHAPES
from draftkiln.target.tensors import write_shards
from draftkiln.target.vision import vision_tensors

SHARD_BYTES = 200 * 10**6
_CODE = ("configuration_kimi_k25.py", "image_processing_kimi_k25.py")


def make(name: str, seed: int, folder: Path) -> Path:
    """Write the made target `name` into `folder`, all or nothing; gives `folder`.

    The same `name` and `seed` give the same bytes on every machine.

    Raises:
        TargetError: `name` is not known, or `folder` exists already.
    """
    if name not in SHAPES:
        raise TargetError(f"no made target is called {name!r}", fix=f"choose one of {', '.join(SHAPES)}")
    if folder.exists():
        raise TargetError(
            f"{folder} exists already",
            why="a made target is written into a folder of its own",
            fix="name another folder, or remove this one",
        )
    shape = SHAPES[name]
    with durable.storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        try:
            work.chmod(0o755)
            for file, value in (
                ("config.json", model_config.config(shape)),
                ("generation_config.json", model_config.generation_config()),
                ("preprocessor_config.json", model_config.preprocessor_config()),
                ("tokenizer.json", tokenizer.tokenizer()),
                ("tokenizer_config.json", tokenizer.tokenizer_config()),
            ):
                durable.write_json(work / file, value)
            for file in _CODE:
                durable.write_text(
                    work / file, resources.files("draftkiln.target.kimi_code").joinpath(file).read_text()
                )
            write_shards(work, [*all_tensors(shape, seed), *vision_tensors(shape, seed)], SHARD_BYTES)
            write_record(work, {"made": name, "seed": seed, "generation": GENERATION})
            work.rename(folder)
            durable.sync_folder(folder.parent)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return folder
