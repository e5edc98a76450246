-- pass@1 and pass@5 of every finished evaluation by category and difficulty, as in benchmark tables.
SELECT e.policy, e.step, e.split, e.samples, e.template, e.temperature, e.top_p, e.max_tokens, e.turns, r.category, r.difficulty,
       count(*) AS problems, avg(pass_at_k(p.samples, p.passed, 1)) AS pass_at_1,
       CASE WHEN min(p.samples) >= 5 THEN avg(pass_at_k(p.samples, p.passed, least(5, p.samples))) END AS pass_at_5
FROM evaluation_problems p JOIN evaluations e USING (evaluation)
JOIN run_problems r ON r.run = p.run AND r.problem_id = p.problem_id
WHERE p.run = $run AND e.status = 'done' AND p.samples = e.samples
GROUP BY ALL ORDER BY e.step, e.policy, e.split, e.samples, e.template, e.temperature, e.top_p, e.max_tokens, e.turns, r.category, r.difficulty
