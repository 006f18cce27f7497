"""The matrix: every pair of a patched speculators release and a vLLM build, proved on the real engine."""
