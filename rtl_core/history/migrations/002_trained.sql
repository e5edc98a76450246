-- What a step trained on, which version 1 did not record. It is found again from what was recorded, by the rules of
-- rollouts/datums.py:
--   * a step of rewards: answers with an advantage (quarantined ones have none) that is not 0, or any where lambda was above 0; none
--     that was masked. Where `permute_advantages` gave each answer another one's advantage the number is right and the tokens are
--     those of as many answers.
--   * a warm start on the teacher's answers: each distinct whole answer of a problem, and only those that passed where so configured.
--   * a warm start on known-good answers leaves no rollouts: their number is known, their tokens stay NULL.
-- `cost/usd` and `tokens/...` in `step_metrics` stay as they were recorded.
ALTER TABLE steps ADD COLUMN examples INTEGER;
ALTER TABLE steps ADD COLUMN train_tokens BIGINT;

UPDATE steps SET examples = found.examples, train_tokens = found.train_tokens
FROM (
    WITH settings AS (
        SELECT run, coalesce(json_extract_string(config, '$.learning.truncated'), 'keep') = 'mask' AS masked,
               coalesce(json_extract_string(config, '$.learning.warm_start_passing_only'), 'true') = 'true' AS passing_only
        FROM runs),
    rewarded AS (
        SELECT r.run, r.step, count(*) AS n, sum(r.n_prompt + r.n_tokens - 1) AS tokens
        FROM rollouts r JOIN advantages a USING (rollout) JOIN settings c ON c.run = r.run
        LEFT JOIN step_metrics w ON w.run = r.run AND w.step = r.step AND w.name = 'learning/kl_weight'
        WHERE (r.purpose = 'train' OR (r.purpose = 'refinement' AND r.evaluation LIKE 'step %/turn-%'))
          AND (a.advantage <> 0 OR coalesce(w.value, 1) > 0) AND NOT (c.masked AND r.stop_reason = 'length')
        GROUP BY r.run, r.step),
    imitated AS (
        SELECT run, step, count(*) AS n, sum(n_prompt + n_tokens - 1) AS tokens
        FROM (SELECT DISTINCT r.run, r.step, r.problem_id, r.n_prompt, r.n_tokens, t.tokens_T
              FROM rollouts r JOIN tokens t USING (rollout) JOIN verdicts v USING (rollout) JOIN settings c ON c.run = r.run
              WHERE r.purpose = 'warm_start' AND r.stop_reason = 'stop' AND (v.outcome = 'passed' OR NOT c.passing_only))
        GROUP BY run, step)
    SELECT s.run, s.step, coalesce(m.value, i.n, r.n, 0) AS examples,
           CASE WHEN i.tokens IS NOT NULL THEN i.tokens
                WHEN m.name = 'warm_start/examples' AND m.value > 0 THEN NULL
                ELSE coalesce(r.tokens, 0) END AS train_tokens
    FROM steps s
    LEFT JOIN rewarded r ON r.run = s.run AND r.step = s.step
    LEFT JOIN imitated i ON i.run = s.run AND i.step = s.step
    LEFT JOIN step_metrics m ON m.run = s.run AND m.step = s.step AND m.name IN ('train/examples', 'warm_start/examples')
    WHERE s.status = 'trained') found
WHERE steps.run = found.run AND steps.step = found.step;
