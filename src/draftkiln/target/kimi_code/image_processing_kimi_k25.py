"""Image processor of a made Kimi-K2.5-shaped model: every image becomes one grid of 4 x 4 patches."""

from typing import Any

import numpy as np
import torch
from transformers import BatchFeature
from transformers.image_processing_utils import BaseImageProcessor


class KimiK25ImageProcessor(BaseImageProcessor):  # type: ignore[misc] # untyped base
    """Resizes media to one small grid; the engines' interface for Kimi-K2.5 and no more.

    Args:
        media_proc_cfg: settings of preprocessor_config.json.
        kwargs: everything else of it.
    """

    def __init__(self, media_proc_cfg: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.media_proc_cfg = media_proc_cfg
        self.num_frames_per_chunk = media_proc_cfg["temporal_merge_kernel_size"]

    def media_tokens_calculator(self, media: dict[str, Any]) -> int:  # noqa: ARG002 - all media have one size
        """Tokens that one image or chunk of frames becomes."""
        side = self.media_proc_cfg["patch_limit_on_one_side"] // self.media_proc_cfg["merge_kernel_size"]
        return int(side * side)

    def preprocess(self, medias: list[dict[str, Any]], **_: Any) -> BatchFeature:
        """Patches `[patches, 3, size, size]` and grids `[medias, 3]` of images and chunks of frames."""
        grids, patches = [], []
        side, size = self.media_proc_cfg["patch_limit_on_one_side"], self.media_proc_cfg["patch_size"]
        for media in medias:
            frames = [media["image"]] if media["type"] == "image" else media["video_chunk"]
            grids.append([len(frames), side, side])
            for frame in frames:
                pixels = (
                    np.asarray(frame.convert("RGB").resize((side * size, side * size)), dtype=np.float32) / 127.5 - 1
                )
                cells = pixels.reshape(side, size, side, size, 3).transpose(0, 2, 4, 1, 3)
                patches.append(cells.reshape(side * side, 3, size, size))
        if not patches:
            return BatchFeature(data={})
        return BatchFeature(
            data={"pixel_values": torch.from_numpy(np.concatenate(patches)), "grid_thws": torch.tensor(grids)}
        )
