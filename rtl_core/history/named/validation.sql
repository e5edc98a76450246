-- Problems by validation status, with the evidence.
SELECT r.problem_id, r.split, v.status, v.evidence, v.tools_key, v.wall_s
FROM run_problems r JOIN validations v USING (fingerprint) WHERE r.run = $run ORDER BY v.status, r.problem_id
