"""Evaluation: target and draft in the real vLLM; acceptance length, and whether the output stays the target's."""
