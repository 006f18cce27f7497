"""Extraction: token ids in, hidden states of the target out, one file a sample, a receipt for each."""
