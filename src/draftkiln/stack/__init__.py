"""Stacks: one pinned set of vLLM build, speculators release and patches; its lock and its environment."""
