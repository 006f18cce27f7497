"""Export: a trained checkpoint -> the folders that vLLM and SGLang load, checked name by name."""
