-- The most common interface mistakes, with one rollout to look at.
-- $limit = 10: how many
SELECT kind, name, expected, got, rollouts, problems, last_step, example
FROM interface_mistakes WHERE run = $run ORDER BY rollouts DESC, kind, name, expected, got LIMIT $limit
