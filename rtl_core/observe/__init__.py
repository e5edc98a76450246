"""Observation of a run: progress, wall time by stage, tokens and cost, the live report, metrics for Weights
& Biases."""
