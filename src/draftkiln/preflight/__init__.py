"""All that can be known before weights load: the recipe against the target's files, the host and the engine's API."""
