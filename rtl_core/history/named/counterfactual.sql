-- Other reward weights over stored verdicts, without problems.weak_ceiling: reward, group signal and spread by epoch.
-- $weights = {"format": 0.0, "interface": 0.0, "syntax": 0.0, "tests": 1.0}: weight of each term, as JSON; others count 0
WITH groups_now AS (
    SELECT epoch, step, problem_id, count(*) AS n, sum(reward) AS total, avg(reward) AS reward, stddev_pop(reward) AS spread
    FROM rewards_under($run, $weights) GROUP BY epoch, step, problem_id),
groups_was AS (
    SELECT step, problem_id, avg(total) AS reward, stddev_pop(total) AS spread
    FROM rewards WHERE run = $run AND purpose = 'train' GROUP BY step, problem_id)
SELECT n.epoch + 1 AS epoch, sum(n.n) AS rollouts, sum(w.reward * n.n) / sum(n.n) AS reward_was, sum(n.total) / sum(n.n) AS reward_now,
       count(*) AS groups, avg(CAST(w.spread > 1e-9 AS INTEGER)) AS signal_was, avg(CAST(n.spread > 1e-9 AS INTEGER)) AS signal_now,
       avg(w.spread) AS spread_was, avg(n.spread) AS spread_now
FROM groups_now n LEFT JOIN groups_was w USING (step, problem_id)
GROUP BY n.epoch ORDER BY n.epoch
