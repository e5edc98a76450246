-- Other reward weights over stored verdicts, rollout by rollout: reward and group-centred advantage, before and now.
-- $weights = {"format": 0.0, "interface": 0.0, "syntax": 0.0, "tests": 1.0}: weight of each term, as JSON; also tests_fraction
-- $from = 0: first step
-- $to = 999: last step
WITH weights AS (
    SELECT CASE WHEN len(list_filter(json_keys($weights), lambda k: k NOT IN ('format', 'interface', 'syntax', 'tests', 'tests_fraction'))) > 0
                THEN error('unknown reward term; known: format, interface, syntax, tests, tests_fraction') END AS complaint,
           coalesce(CAST($weights ->> 'format' AS DOUBLE), 0) AS f, coalesce(CAST($weights ->> 'interface' AS DOUBLE), 0) AS i,
           coalesce(CAST($weights ->> 'syntax' AS DOUBLE), 0) AS s, coalesce(CAST($weights ->> 'tests' AS DOUBLE), 0) AS t,
           coalesce(CAST($weights ->> 'tests_fraction' AS DOUBLE), 0) AS p),
now AS (
    SELECT rollout, step, problem_id, f * format + i * interface + s * syntax + t * tests + p * tests_fraction AS reward
    FROM term_values, weights WHERE run = $run AND purpose = 'train' AND step BETWEEN $from AND $to AND complaint IS NULL)
SELECT n.rollout, r.total AS reward_was, n.reward AS reward_now, a.advantage AS advantage_was,
       n.reward - avg(n.reward) OVER (PARTITION BY n.step, n.problem_id) AS advantage_now
FROM now n LEFT JOIN rewards r USING (rollout) LEFT JOIN advantages a USING (rollout)
ORDER BY n.step, n.problem_id, n.rollout
