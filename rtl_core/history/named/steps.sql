-- One row per training step (the first is 0): reward, pass rate, teacher KL, entropy, seconds.
SELECT s.step, s.epoch + 1 AS epoch, s.status, r.reward, p.pass_rate, k.k1 AS teacher_kl, e.value AS entropy, t.seconds
FROM steps s
LEFT JOIN (SELECT * FROM reward_by_step WHERE run = $run) r USING (step)
LEFT JOIN (SELECT * FROM pass_by_step WHERE run = $run) p USING (step)
LEFT JOIN (SELECT * FROM teacher_kl_by_step WHERE run = $run) k USING (step)
LEFT JOIN step_metrics e ON e.run = s.run AND e.step = s.step AND e.name = 'optim/entropy'
LEFT JOIN step_times t ON t.run = s.run AND t.step = s.step AND t.stage = 'total'
WHERE s.run = $run ORDER BY s.step
