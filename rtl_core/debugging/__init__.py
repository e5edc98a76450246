"""Debug a verdict: grade a stored rollout again, with waves, or open a shell in the sandbox that judged it.
The history is not changed."""
