"""Reproducible EAGLE-3 draft training: hidden states out of vLLM, patched, checked and recorded."""

__version__ = "0.1.0"
