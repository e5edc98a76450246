-- Unbiased pass@k of every finished evaluation, computed from its rollouts.
SELECT e.policy, e.step, e.split, e.samples, e.template, e.temperature, e.top_p, e.max_tokens, e.turns, k.k,
       avg(pass_at_k(p.samples, p.passed, k.k)) AS pass_at_k, count(*) AS problems
FROM evaluation_problems p JOIN evaluations e USING (evaluation), (VALUES (1), (2), (4), (8), (16), (32), (64)) k(k)
WHERE p.run = $run AND e.status = 'done' AND p.samples = e.samples AND k.k <= p.samples
GROUP BY ALL ORDER BY e.step, e.policy, e.split, e.samples, e.template, e.temperature, e.top_p, e.max_tokens, e.turns, k.k
