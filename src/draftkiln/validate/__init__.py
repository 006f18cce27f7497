"""Validation: nothing of the right shape with wrong values gets through."""
