-- Other reward weights over stored verdicts, rollout by rollout: reward and group-centred advantage, before and now.
-- $weights = {"format": 0.0, "interface": 0.0, "syntax": 0.0, "tests": 1.0}: weight of each term, as JSON; others count 0
-- $from = 0: first step
-- $to = 999: last step
SELECT n.rollout, r.total AS reward_was, n.reward AS reward_now, a.advantage AS advantage_was,
       n.reward - avg(n.reward) OVER (PARTITION BY n.step, n.problem_id) AS advantage_now
FROM rewards_under($run, $weights) n LEFT JOIN rewards r USING (rollout) LEFT JOIN advantages a USING (rollout)
WHERE n.step BETWEEN $from AND $to
ORDER BY n.step, n.problem_id, n.rollout
