-- Answers without a verdict: grading failed for reasons other than the model (see the run's log), or has not ended yet.
SELECT r.rollout, r.purpose, r.step, r.problem_id, r.recorded_at, v.reasons
FROM rollouts r LEFT JOIN verdicts v USING (rollout)
WHERE r.run = $run AND (v.outcome IS NULL OR v.outcome = 'infrastructure_error') ORDER BY r.rollout
