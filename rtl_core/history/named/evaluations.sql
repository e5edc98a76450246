-- Held-out pass@1 with its 95 % interval, pass@k and the kind of figure, of every evaluation.
SELECT policy, step, split, template, temperature, top_p, max_tokens, turns, n_problems, samples, pass_at_1, lo, hi, pass_at_k, kind, status
FROM evaluations WHERE run = $run ORDER BY step, policy
