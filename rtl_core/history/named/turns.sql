-- Answers by turn of every evaluation with refinement: how many, how many passed, and pass@1 by the end of the turn.
WITH answers AS (
    SELECT t.base AS evaluation, t.turn, t.problem_id, t.sample, v.outcome = 'passed' AS passed
    FROM rollout_turns t JOIN verdicts v USING (rollout)
    WHERE t.run = $run AND t.purpose = 'evaluation' AND v.outcome <> 'infrastructure_error'),
firsts AS (SELECT evaluation, count(*) AS n FROM answers WHERE turn = 1 GROUP BY evaluation),
counted AS (SELECT evaluation, turn, count(*) AS answers, count(*) FILTER (WHERE passed) AS passed FROM answers GROUP BY evaluation, turn)
SELECT c.evaluation, c.turn, c.answers, c.passed,
       sum(c.passed) OVER (PARTITION BY c.evaluation ORDER BY c.turn) / f.n AS passed_by_then
FROM counted c JOIN firsts f USING (evaluation)
WHERE c.evaluation IN (SELECT evaluation FROM counted WHERE turn > 1)
ORDER BY c.evaluation, c.turn
