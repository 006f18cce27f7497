"""Evaluation: target and draft in the real vLLM, their acceptance length, and proof that the output stays the target's."""
