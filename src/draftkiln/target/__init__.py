"""Targets: made on the spot from a seed, fetched pinned, or found in a folder.

`resolve.ensure(source)` gives the directory of a recipe's target, `facts.read` and `facts.check` what it says about
itself, `language.continuation` what a made target answers, `reference.reference_text_model` its text part under
transformers.
"""
