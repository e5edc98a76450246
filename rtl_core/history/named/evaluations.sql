-- Held-out pass@1 with its 95 % interval, and pass@k, of every evaluation.
SELECT policy, step, split, template, temperature, top_p, max_tokens, turns, n_problems, samples, pass_at_1, lo, hi, pass_at_k, status
FROM evaluations WHERE run = $run ORDER BY step, policy
