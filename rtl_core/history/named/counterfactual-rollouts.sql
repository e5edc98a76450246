-- Other reward weights over stored verdicts, without problems.weak_ceiling, by rollout: reward and group-centred advantage, before and now.
-- $weights = {"format": 0.0, "interface": 0.0, "syntax": 0.0, "tests": 1.0}: weight of each term, as JSON; others count 0
-- $from = 0: first step
-- $to = 1000000: last step
SELECT n.rollout, r.total AS reward_was, n.reward AS reward_now, r.total - avg(r.total) OVER same AS advantage_was,
       n.reward - avg(n.reward) OVER same AS advantage_now
FROM rewards_under($run, $weights) n LEFT JOIN rewards r USING (rollout)
WHERE n.step BETWEEN $from AND $to WINDOW same AS (PARTITION BY n.step, n.problem_id)
ORDER BY n.step, n.problem_id, n.rollout
