"""Tokens to dollars: price list, usage by model and kind, and the estimate of a run."""
