-- Facts that version 1 wrote into keys and messages get columns, and nothing reads a key from here on. `evaluation` becomes the key of an
-- evaluation or NULL; it was also the name of a warm start, of a measurement, and of a later turn (`step 3/turn-2`).
ALTER TABLE runs ADD COLUMN ended_by VARCHAR;
UPDATE runs SET ended_by = CASE WHEN starts_with(message, 'stopped by a signal') THEN 'signal' ELSE 'request' END
WHERE status = 'cancelled';

ALTER TABLE evaluations ADD COLUMN template VARCHAR;
ALTER TABLE evaluations ADD COLUMN temperature DOUBLE;
UPDATE evaluations
SET split = parts[1],
    template = list_filter(parts[2:], lambda part: NOT starts_with(part, 'temperature '))[1],
    temperature = TRY_CAST(split_part(list_filter(parts[2:], lambda part: starts_with(part, 'temperature '))[1], ' ', 2) AS DOUBLE)
FROM (SELECT evaluation AS key, string_split(split, ', ') AS parts FROM evaluations) named
WHERE evaluation = key AND len(parts) > 1;

-- DuckDB makes a column NOT NULL only before the transaction updates the table.
ALTER TABLE rollouts ADD COLUMN policy VARCHAR DEFAULT 'student';
ALTER TABLE rollouts ADD COLUMN turn INTEGER DEFAULT 1;
ALTER TABLE rollouts ALTER COLUMN policy SET NOT NULL;
ALTER TABLE rollouts ALTER COLUMN turn SET NOT NULL;
ALTER TABLE rollouts ALTER COLUMN policy DROP DEFAULT;
ALTER TABLE rollouts ALTER COLUMN turn DROP DEFAULT;
ALTER TABLE rollouts ADD COLUMN parent VARCHAR;
-- The teacher's evaluations, measurements and warm starts have keys `RUN/teacher/...`; an evaluation's own row knows better.
UPDATE rollouts
SET turn = found.turn,
    policy = found.policy,
    parent = CASE WHEN found.turn > 1
                  THEN run || CASE WHEN found.turn > 2 THEN '/eval/' || base || '/turn-' || (found.turn - 1)
                                   WHEN base = 'step ' || step THEN printf('/step/%05d', step)
                                   ELSE '/eval/' || base END
                           || '/' || problem_id || '/' || sample END
FROM (
    SELECT r.rollout AS key, r.turn, r.base,
           coalesce(e.policy, CASE WHEN starts_with(r.base, r.run || '/teacher/') THEN 'teacher' ELSE 'student' END) AS policy
    FROM (SELECT rollout, run, regexp_replace(evaluation, '/turn-[0-9]+$', '') AS base,
                 coalesce(TRY_CAST(regexp_extract(evaluation, '/turn-([0-9]+)$', 1) AS INTEGER), 1) AS turn
          FROM rollouts WHERE purpose <> 'train') r
    LEFT JOIN evaluations e ON e.evaluation = r.base) found
WHERE rollout = key;

CREATE MACRO evaluation_of(purpose, evaluation, step) AS
    CASE WHEN purpose = 'refinement' THEN nullif(regexp_replace(evaluation, '/turn-[0-9]+$', ''), 'step ' || step) END;
UPDATE rollouts SET evaluation = evaluation_of(purpose, evaluation, step) WHERE purpose IN ('warm_start', 'measurement', 'refinement');
UPDATE teacher_scores SET evaluation = evaluation_of(purpose, evaluation, step) WHERE purpose IN ('warm_start', 'measurement', 'refinement');
UPDATE verdicts SET evaluation = evaluation_of(purpose, evaluation, step) WHERE purpose IN ('warm_start', 'measurement', 'refinement');
UPDATE verdict_stages SET evaluation = evaluation_of(purpose, evaluation, step) WHERE purpose IN ('warm_start', 'measurement', 'refinement');
UPDATE interface_mismatches SET evaluation = evaluation_of(purpose, evaluation, step) WHERE purpose IN ('warm_start', 'measurement', 'refinement');
UPDATE rewards SET evaluation = evaluation_of(purpose, evaluation, step) WHERE purpose IN ('warm_start', 'measurement', 'refinement');
UPDATE reward_terms SET evaluation = evaluation_of(purpose, evaluation, step) WHERE purpose IN ('warm_start', 'measurement', 'refinement');
UPDATE advantages SET evaluation = evaluation_of(purpose, evaluation, step) WHERE purpose IN ('warm_start', 'measurement', 'refinement');
DROP MACRO evaluation_of;
