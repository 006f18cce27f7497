"""Refresh: from a vLLM build nobody here has seen to a proven stack, or to the list of what stands in its way."""
