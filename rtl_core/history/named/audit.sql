-- Doubtful passes: an audit found that the answer behaves differently from the golden answer, or from the majority of the passes.
SELECT a.rollout, a.problem_id, a.method, a.share, a.detail, a.trace, a.audited_at
FROM audits a JOIN verdicts v USING (rollout) WHERE a.run = $run AND a.result = 'different' AND v.outcome = 'passed' ORDER BY a.rollout
