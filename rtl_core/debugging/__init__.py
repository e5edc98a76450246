"""Why was an answer not paid? A stored rollout graded again, with waves, or a shell in the sandbox that judged it. The history stays as it is."""
