-- Unbiased pass@k of every evaluation, found anew from its rollouts.
SELECT e.policy, e.step, k.k, avg(pass_at_k(p.samples, p.passed, k.k)) AS pass_at_k, count(*) AS problems
FROM evaluation_problems p JOIN evaluations e USING (evaluation), (VALUES (1), (2), (4), (8), (16), (32), (64)) k(k)
WHERE p.run = $run AND k.k <= p.samples GROUP BY e.policy, e.step, k.k ORDER BY e.step, e.policy, k.k
