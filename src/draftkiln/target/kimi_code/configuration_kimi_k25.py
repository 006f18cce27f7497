"""Configuration of a made Kimi-K2.5-shaped model, for transformers releases that do not know `kimi_k25`."""

from typing import Any

from transformers import DeepseekV3Config, PretrainedConfig


class KimiK25VisionConfig(PretrainedConfig):  # type: ignore[misc] # untyped base
    """The vision tower's sizes, as config.json gives them."""

    model_type = "kimi_k25_vision"


class KimiK25Config(PretrainedConfig):  # type: ignore[misc] # untyped base
    """A DeepseekV3 text part and a vision tower.

    Args:
        text_config: configuration of the text part; `kimi_k2` is DeepseekV3 under another name.
        vision_config: configuration of the vision tower.
        kwargs: everything else of config.json.
    """

    model_type = "kimi_k25"

    def __init__(
        self,
        text_config: dict[str, Any] | DeepseekV3Config | None = None,
        vision_config: dict[str, Any] | KimiK25VisionConfig | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(text_config, DeepseekV3Config):
            text_config = DeepseekV3Config(**(text_config or {}))
        if not isinstance(vision_config, KimiK25VisionConfig):
            vision_config = KimiK25VisionConfig(**(vision_config or {}))
        self.text_config = text_config
        self.vision_config = vision_config
        super().__init__(**kwargs)
