-- A run of $n training rollouts with an evaluation every 100 steps. By column names, so that a column that the schema gains later is NULL.
-- Token arrays of the first 100 steps alone: they stand in tables of their own, and few queries read them.
CREATE TEMP TABLE place AS SELECT split, problem_id, family, (record ->> '$$.golden.*')[1] AS golden,
    row_number() OVER (PARTITION BY split ORDER BY problem_id) - 1 AS number FROM run_problems JOIN problems USING (fingerprint, problem_id);
CREATE TEMP TABLE trained AS SELECT i, 'train' AS purpose, NULL::VARCHAR AS evaluation, (i // $step // 100)::INTEGER AS epoch,
    (i // $step)::INTEGER AS step, 'train' AS split, (i // $samples) % $train AS number, (i % $samples)::INTEGER AS sample FROM range($n) t(i);
CREATE TEMP TABLE evaluated AS SELECT $n + 1000 * step + i AS i, 'evaluation' AS purpose, format('$run/student/{:05d}', step) AS evaluation,
    (step // 100)::INTEGER AS epoch, step::INTEGER AS step, 'heldout' AS split, i // 4 AS number, (i % 4)::INTEGER AS sample
    FROM (SELECT DISTINCT step FROM trained WHERE step % 100 = 0 UNION SELECT 1 + max(step) FROM trained), range(4 * $heldout) t(i);
CREATE TEMP TABLE base AS SELECT a.*, '$run' AS run, problem_id, family, golden, hash(i) % 1000 / 1000.0 AS luck,
    0.2 + 0.7 * step / (1 + max(step) OVER ()) AS skill,
    format('$run/{}/{}/{}', coalesce('eval/' || evaluation, format('step/{:05d}', step)), problem_id, sample) AS rollout
    FROM (FROM trained UNION ALL FROM evaluated) a JOIN place USING (split, number);

INSERT INTO validations BY NAME SELECT fingerprint, 'tools' AS tools_key, run, problem_id, 'fit' AS status, '{}' AS evidence,
    '{}' AS tools, 0.2 AS wall_s, TIMESTAMP '2026-01-01' AS checked_at FROM run_problems;
INSERT INTO epochs BY NAME SELECT run, epoch, count(DISTINCT step)::INTEGER AS n_steps, TIMESTAMP '2026-01-01' AS planned_at
    FROM base WHERE purpose = 'train' GROUP BY run, epoch;
INSERT INTO steps BY NAME SELECT DISTINCT run, step, epoch, 'trained' AS status, TIMESTAMP '2026-01-01' AS planned_at,
    TIMESTAMP '2026-01-01' AS trained_at, 's' AS state_path, 'p' AS sampler_path, 200 AS examples, 17800 AS train_tokens
    FROM base WHERE purpose = 'train';
INSERT INTO step_problems BY NAME SELECT DISTINCT run, step, (number % $per_step)::INTEGER AS position, problem_id
    FROM base WHERE purpose = 'train';
INSERT INTO step_times BY NAME SELECT run, step, stage, 1.0 AS seconds
    FROM steps, (VALUES ('sample'), ('grade'), ('train'), ('total')) v(stage);
INSERT INTO step_metrics BY NAME SELECT run, step, name, 0.05 AS value
    FROM steps, (VALUES ('optim/entropy'), ('teacher_kl'), ('learning/kl_weight')) v(name);
INSERT INTO evaluations BY NAME SELECT evaluation, run, 'student' AS policy, step, 'heldout' AS split, 'done' AS status, $heldout AS n_problems,
    4 AS samples, avg((luck < skill)::INTEGER) AS pass_at_1, pass_at_1 - 0.05 AS lo, pass_at_1 + 0.05 AS hi,
    TIMESTAMP '2026-01-01' AS started_at FROM base WHERE purpose = 'evaluation' GROUP BY evaluation, run, step;
INSERT INTO prompts BY NAME SELECT 'prompt' AS prompt, range(30)::INTEGER[] AS tokens_P;
INSERT INTO rollouts BY NAME SELECT $place, sample, step AS policy_step, 'stop' AS stop_reason, 'prompt' AS prompt, 30 AS n_prompt,
    60 AS n_tokens, format('```verilog
{}// line {}
```', golden, i) AS text, TIMESTAMP '2026-01-01' AS recorded_at,
    'student' AS policy FROM base;
INSERT INTO verdicts BY NAME SELECT $place,
    CASE WHEN luck < skill THEN 'passed' WHEN luck > 0.6 THEN 'interface_mismatch' ELSE 'tests_failed' END AS outcome,
    true AS format_ok, luck < skill OR luck <= 0.6 AS interface_ok, true AS syntax_ok, 3 AS tests_passed, 8 AS tests_total,
    CASE WHEN luck < skill THEN [] ELSE [format('test_{}.{}: AssertionError: result is {}, expected 3', family,
        ['reset_value', 'vectors', 'corners', 'order'][(1 + hash(i, 1) % 4)::BIGINT], hash(i, 2) % 16)] END AS reasons,
    'bubblewrap' AS executor, '{}' AS tools, 0 AS seed, 0.2 AS wall_s, 0.1 AS cpu_s, false AS cached,
    TIMESTAMP '2026-01-01' AS graded_at FROM base;
INSERT INTO verdict_stages BY NAME SELECT $place, position, stage,
    CASE WHEN luck < skill OR position < 1 THEN 'passed' WHEN position = 3 THEN 'skipped' ELSE 'failed' END AS status,
    []::VARCHAR[] AS reasons, 0.1 AS wall_s
    FROM base, (VALUES (0, 'format'), (1, 'interface'), (2, 'syntax'), (3, 'tests')) v(position, stage);
INSERT INTO interface_mismatches BY NAME SELECT $place, position, ['missing_port', 'extra_port'][1 + position] AS kind,
    'port_' || (hash(i, position) % 300) AS name, 'input [' || (hash(i) % 7) || ':0]' AS expected, 'nothing' AS got
    FROM base, (VALUES (0), (1)) v(position) WHERE luck >= skill AND luck > 0.6;
INSERT INTO rewards BY NAME SELECT $place, 0.4 + 1.2 * (luck < skill)::INTEGER AS total FROM base;
INSERT INTO reward_terms BY NAME SELECT $place, term, weight, (luck < skill)::INTEGER AS value
    FROM base, (VALUES ('format', 0.1), ('interface', 0.2), ('syntax', 0.3), ('tests', 1.0)) v(term, weight);
INSERT INTO teacher_scores BY NAME SELECT $place, luck AS k1_mean, luck AS k2_mean, luck AS k3_mean, 60 AS n_tokens FROM base;
INSERT INTO advantages BY NAME SELECT $place, luck - 0.5 AS advantage, luck AS reward, true AS counts FROM base;
INSERT INTO tokens BY NAME SELECT rollout, range(60)::INTEGER[] AS tokens_T, list_transform(range(60), lambda j: -0.1 * j)::FLOAT[] AS logprobs_T
    FROM base WHERE step < 100;
INSERT INTO teacher_tokens BY NAME SELECT rollout, list_transform(range(60), lambda j: -0.2 * j)::FLOAT[] AS logprobs_T
    FROM base WHERE step < 100;
