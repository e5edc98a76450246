-- Passes that an audit found wrong: the answer behaves differently from the golden one.
SELECT a.rollout, a.problem_id, a.detail, a.audited_at
FROM audits a JOIN verdicts v USING (rollout) WHERE a.run = $run AND a.result = 'different' AND v.outcome = 'passed' ORDER BY a.rollout
