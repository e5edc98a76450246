-- Evaluations in episodes, by number of turns: answers, how many of them passed, and the share of all answers that had passed by the end of the turn.
WITH answers AS (
    SELECT r.evaluation, coalesce(r.n_turns, 1) AS turn, v.outcome = 'passed' AS passed
    FROM rollouts r JOIN verdicts v USING (rollout)
    WHERE r.run = $run AND r.evaluation IS NOT NULL AND v.outcome <> 'infrastructure_error')
SELECT evaluation, turn, count(*) AS answers, count(*) FILTER (WHERE passed) AS passed,
       sum(count(*) FILTER (WHERE passed)) OVER (PARTITION BY evaluation ORDER BY turn)
       / sum(count(*)) OVER (PARTITION BY evaluation) AS passed_by_then
FROM answers GROUP BY evaluation, turn
QUALIFY max(turn) OVER (PARTITION BY evaluation) > 1
ORDER BY evaluation, turn
