"""Fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_engines import GENERATOR, WORKER

from draftkiln.seams.sources import FolderSources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., FolderSources]:
    """Write files into a folder of its own and give its sources."""

    def write(files: Mapping[str, str], name: str) -> FolderSources:
        folder = tmp_path / name
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return FolderSources(folder)

    return write


@pytest.fixture
def speculators(tree: Callable[..., FolderSources]) -> Callable[..., FolderSources]:
    """A tree of speculators with this generator and this worker."""

    def write(generator: str = GENERATOR, worker: str = WORKER, **more: str) -> FolderSources:
        files = {
            "speculators/__init__.py": "",
            "speculators/data_generation/__init__.py": "",
            "speculators/data_generation/vllm_hidden_states_generator.py": generator,
            "speculators/data_generation/custom_worker.py": worker,
            "speculators-0.3.0.dist-info/METADATA": "",
        } | {f"speculators/data_generation/{name}.py": text for name, text in more.items()}
        return tree(files, "speculators-tree")

    return write
