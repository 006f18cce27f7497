"""Training: checked hidden states -> a draft, by speculators' own trainer."""
