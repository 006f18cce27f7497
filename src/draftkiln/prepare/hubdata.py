"""Files of a data set on the Hugging Face Hub, pinned by commit and fetched only where the recipe allows a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import NetworkError
from draftkiln.target.hub import refuse_offline

if TYPE_CHECKING:
    from draftkiln.recipe.model import HubData


def fetch(source: HubData) -> list[Path]:
    """Paths of the files, in huggingface_hub's cache; those that are there are not fetched again.

    Raises:
        NetworkError: the recipe or the environment allows no network, or a file cannot be fetched.
    """
    if not source.network:
        raise NetworkError(
            f"cannot fetch {source.hub}",
            why="data.source.network is false",
            fix="set it to true, or fetch the files yourself and name them with `path`",
        )
    refuse_offline(source.hub)
    import huggingface_hub

    paths = []
    for name in source.files:
        try:
            found = huggingface_hub.hf_hub_download(source.hub, name, repo_type="dataset", revision=source.revision)
        except Exception as error:  # the transports below huggingface_hub raise what they like
            raise NetworkError(
                f"cannot fetch {name} of {source.hub}@{source.revision}",
                why=f"{type(error).__name__}: {error}".split("\n", 1)[0],
                fix="check the names and the commit, and HF_TOKEN where the data set is private; then run it again",
            ) from error
        paths.append(Path(found))
    return paths
