-- The most common interface mistakes of training answers, with an example rollout.
-- $limit = 10: how many
SELECT kind, name, expected, got, rollouts, problems, last_step, example
FROM interface_mistakes WHERE run = $run ORDER BY rollouts DESC, kind, name, expected, got LIMIT $limit
