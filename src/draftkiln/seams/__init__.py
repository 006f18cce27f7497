"""Seams: what the patched generator and worker rely on in vLLM, and whether a vLLM build still has it.

`extract` lists the seams of a tree of speculators, `check` compares them with vLLM's *sources* (parsed, never
imported), and `probe`, which runs inside a stack, finds the behaviour that no signature shows.
"""
