-- What an answer was trained on, and the value of every reward term, which versions before did not record. Both are found again from
-- what was recorded:
--   * `reward` is the total; of an answer in a later turn with its improvement over the one before (an older configuration without
--     `refinement.improvement_weight` had 0.5); where cut answers were penalised, less that penalty.
--   * `counts` is false where cut answers were masked and the answer was cut.
--   * terms without a weight had no rows; their values follow from the verdict.
ALTER TABLE advantages ADD COLUMN reward DOUBLE;
ALTER TABLE advantages ADD COLUMN counts BOOLEAN;

UPDATE advantages SET reward = found.reward, counts = found.counts
FROM (
    WITH settings AS (
        SELECT run, coalesce(json_extract_string(config, '$.learning.truncated'), 'keep') AS truncated,
               coalesce(CAST(json_extract_string(config, '$.learning.overlong_penalty') AS DOUBLE), 0.5) AS penalty,
               coalesce(CAST(json_extract_string(config, '$.learning.overlong_buffer') AS DOUBLE), 0) AS buffer,
               coalesce(CAST(json_extract_string(config, '$.sampling.max_tokens') AS DOUBLE), 4096) AS most,
               coalesce(CAST(json_extract_string(config, '$.refinement.improvement_weight') AS DOUBLE), 0.5) AS gain
        FROM runs),
    answers AS (
        SELECT r.rollout, r.run, r.stop_reason, r.n_tokens, r.parent, w.total
        FROM rollouts r JOIN advantages a USING (rollout) JOIN rewards w USING (rollout))
    SELECT t.rollout, NOT (c.truncated = 'mask' AND t.stop_reason = 'length') AS counts,
           t.total + coalesce(c.gain * (t.total - p.total), 0)
                   - CASE WHEN c.truncated <> 'penalise' THEN 0
                          WHEN t.stop_reason = 'length' THEN c.penalty
                          WHEN c.buffer = 0 THEN 0
                          ELSE c.penalty * least(greatest((t.n_tokens - (c.most - c.buffer)) / c.buffer, 0), 1) END AS reward
    FROM answers t JOIN settings c ON c.run = t.run LEFT JOIN rewards p ON p.rollout = t.parent) found
WHERE advantages.rollout = found.rollout;

INSERT INTO reward_terms (rollout, run, purpose, evaluation, epoch, step, problem_id, term, weight, value)
SELECT v.rollout, v.run, v.purpose, v.evaluation, v.epoch, v.step, v.problem_id, v.term, 0.0, CASE WHEN v.outcome = 'rejected' THEN 0.0 ELSE v.value END
FROM (
    SELECT *, unnest(['format', 'interface', 'syntax', 'tests', 'tests_fraction']) AS term,
           unnest([CAST(format_ok AS DOUBLE), CAST(interface_ok AS DOUBLE), CAST(syntax_ok AS DOUBLE), CAST(outcome = 'passed' AS DOUBLE),
                   CASE WHEN outcome = 'passed' THEN 1.0 WHEN tests_total = 0 THEN 0.0
                        ELSE least(tests_passed, tests_total - 1) / tests_total END]) AS value
    FROM verdicts WHERE outcome <> 'infrastructure_error') v
WHERE NOT EXISTS (SELECT 1 FROM reward_terms r WHERE r.rollout = v.rollout AND r.term = v.term);
