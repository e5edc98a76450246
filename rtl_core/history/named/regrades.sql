-- Regradings with the number of verdicts that they changed.
SELECT g.label, count(*) AS rollouts, count(*) FILTER (WHERE g.outcome <> v.outcome) AS changed, max(g.graded_at) AS graded_at
FROM regrades g JOIN verdicts v USING (rollout) WHERE g.run = $run GROUP BY g.label ORDER BY graded_at
