"""Python files that a made target carries: read and copied, never imported from here."""
