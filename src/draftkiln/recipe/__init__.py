"""Recipes: what to run, as a typed model, read from YAML with every problem named by file, line and key path."""
