-- rtl-distill history (DuckDB). Its version is `VERSION` in schema.py; a change of a table needs a new one.
--
-- One process, the flow's, writes; everybody reads. All times are UTC TIMESTAMPs, all durations seconds, all log-
-- probabilities natural logarithms.
--
-- Three habits make the tables pleasant to query:
--   * Keys are names for people (RUN/step/00012/PROBLEM/SAMPLE, RUN/eval/EVALUATION/PROBLEM/SAMPLE); every fact in them has a column.
--   * Every table of facts about a rollout repeats the rollout's *place* (run, purpose, evaluation, epoch, step, problem_id),
--     so that daily questions need no join; columnar compression makes the repetition almost free.
--   * Token arrays stand in tables of their own and are read only by those who want them.
--
-- Everything after the line "-- Views" is created again whenever it has changed.

CREATE TABLE schema_version (
    version     INTEGER PRIMARY KEY,        -- one row
    applied_at  TIMESTAMP NOT NULL,
    written_by  VARCHAR NOT NULL,           -- package version that created the file
    views       VARCHAR NOT NULL            -- hash of the views' text; a writer that knows others creates them again
);

-- ---------------------------------------------------------------------------------------------------- runs and problems

CREATE TABLE runs (
    run           VARCHAR PRIMARY KEY,      -- the name; to start it again is to go on
    status        VARCHAR NOT NULL,         -- created | running | finished | failed | cancelled | paused
    created_at    TIMESTAMP NOT NULL,
    heartbeat_at  TIMESTAMP,                -- last sign of life of a running flow
    finished_at   TIMESTAMP,
    student       VARCHAR,
    teacher       VARCHAR,
    seed          BIGINT,
    config        JSON,                     -- the whole effective configuration
    config_hash   VARCHAR,
    problems_hash VARCHAR,                  -- over the fingerprints of all problems in use
    versions      JSON,                     -- package, tool or image -> version or digest
    message       VARCHAR,                  -- why it stopped, if it did, for people
    ended_by      VARCHAR,                  -- of a cancelled run: signal (its process was told to end) | request (in Prefect)
    start_state   VARCHAR,                  -- of a run with `tinker.start_from`: its own copy of the weights that it began with,
    start_sampler VARCHAR,                  -- to train and to sample from; NULL for a fresh adapter
    console       VARCHAR                   -- page of its newest trainer in the console of the service, if that has one
);

CREATE TABLE problems (
    fingerprint  VARCHAR PRIMARY KEY,       -- SHA-256 over all that the model sees and all that judges it
    problem_id   VARCHAR NOT NULL,
    prompt       VARCHAR NOT NULL,
    interface    JSON,                      -- what the problem demands: module, ports, parameters
    record       JSON NOT NULL,             -- the whole Problem
    first_seen   TIMESTAMP NOT NULL
);

-- Which problems a run uses, and as what. Labels stand here because they are no part of the fingerprint.
CREATE TABLE run_problems (
    run          VARCHAR NOT NULL,
    problem_id   VARCHAR NOT NULL,
    fingerprint  VARCHAR NOT NULL,
    split        VARCHAR NOT NULL,          -- train | heldout | excluded (unfit by validation)
    position     INTEGER,                   -- place in the curriculum, from 0; NULL where it has none
    source       VARCHAR NOT NULL,          -- starter | cvdp | verilog-eval ...
    category     VARCHAR NOT NULL,
    difficulty   VARCHAR NOT NULL,          -- easy | medium | hard
    family       VARCHAR,
    PRIMARY KEY (run, problem_id)
);

-- What validation found, once per problem and set of tools: a second run with the same tools need not ask again.
CREATE TABLE validations (
    fingerprint  VARCHAR NOT NULL,
    tools_key    VARCHAR NOT NULL,          -- executor, tool versions or image digest, seed
    run          VARCHAR NOT NULL,          -- the run that asked last
    problem_id   VARCHAR NOT NULL,
    status       VARCHAR NOT NULL,          -- fit | fit_without_golden | weak | flaky | broken | unsupported
    evidence     JSON,
    tools        JSON,
    wall_s       DOUBLE,
    checked_at   TIMESTAMP NOT NULL,
    PRIMARY KEY (fingerprint, tools_key)
);

-- ------------------------------------------------------------------------------------------------------ epochs and steps

CREATE TABLE epochs (
    run         VARCHAR NOT NULL,
    epoch       INTEGER NOT NULL,
    n_steps     INTEGER NOT NULL,
    planned_at  TIMESTAMP NOT NULL,
    PRIMARY KEY (run, epoch)
);

CREATE TABLE steps (
    run           VARCHAR NOT NULL,
    step          INTEGER NOT NULL,         -- counts through the whole run, from 0
    epoch         INTEGER NOT NULL,
    status        VARCHAR NOT NULL,         -- planned | trained
    planned_at    TIMESTAMP NOT NULL,
    trained_at    TIMESTAMP,
    state_path    VARCHAR,                  -- weights and optimiser after this step
    sampler_path  VARCHAR,                  -- weights to sample from after this step
    examples      INTEGER,                  -- answers that the step trained on; fewer than it sampled where some taught nothing
    train_tokens  BIGINT,                   -- their tokens, prompt + completion - 1 each: what training costs
    PRIMARY KEY (run, step)
);

CREATE TABLE step_problems (
    run         VARCHAR NOT NULL,
    step        INTEGER NOT NULL,
    position    INTEGER NOT NULL,
    problem_id  VARCHAR NOT NULL,
    PRIMARY KEY (run, step, position)
);

CREATE TABLE step_times (
    run      VARCHAR NOT NULL,
    step     INTEGER NOT NULL,
    stage    VARCHAR NOT NULL,              -- sample | grade | score | train | store | store_waited | work | total; stages overlap, totals do not
    seconds  DOUBLE NOT NULL,
    PRIMARY KEY (run, step, stage)
);

CREATE TABLE step_metrics (
    run    VARCHAR NOT NULL,
    step   INTEGER NOT NULL,
    name   VARCHAR NOT NULL,                -- the community's names where there are any: teacher_kl, optim/entropy ...
    value  DOUBLE,
    PRIMARY KEY (run, step, name)
);

CREATE TABLE evaluations (
    evaluation     VARCHAR PRIMARY KEY,
    run            VARCHAR NOT NULL,
    policy         VARCHAR NOT NULL,        -- student | teacher
    step           INTEGER NOT NULL,        -- train steps that the weights had seen
    split          VARCHAR NOT NULL,
    status         VARCHAR NOT NULL,        -- running | done | failed
    n_problems     INTEGER NOT NULL,
    samples        INTEGER NOT NULL,        -- per problem
    pass_at_1      DOUBLE,
    lo             DOUBLE,                  -- 95 % interval of pass_at_1 over problems
    hi             DOUBLE,
    pass_at_k      JSON,                    -- k -> unbiased estimate
    by_difficulty  JSON,
    by_family      JSON,
    started_at     TIMESTAMP NOT NULL,
    finished_at    TIMESTAMP,
    template       VARCHAR,                 -- another prompt template than the run's; NULL for the run's own
    temperature    DOUBLE,                  -- another sampling temperature than the run's; NULL for the run's own
    top_p          DOUBLE,                  -- another top_p than the run's; NULL for the run's own
    max_tokens     INTEGER,                 -- another limit of an answer's tokens than the run's; NULL for the run's own
    left_out       JSON,                    -- why problems of the set are not in the figures -> which, or how many
    errata         JSON,                    -- problem in the figures with a known fault of its set -> what is wrong
    turns          INTEGER,                 -- of episodes with tools: the most turns of one; NULL for single-shot answers
    kind           VARCHAR                  -- of one answer: single attempt | tools without harness | feedback of the harness
);

-- ------------------------------------------------------------------------------------------------------------- rollouts

CREATE TABLE rollouts (
    rollout      VARCHAR PRIMARY KEY,
    run          VARCHAR NOT NULL,
    purpose      VARCHAR NOT NULL,          -- train | set_aside (and sampled anew) | evaluation | warm_start (the student imitates it)
                                            -- | measurement (of difficulty, before the run)
    evaluation   VARCHAR,                   -- key of the evaluation that it belongs to; NULL outside of evaluations
    epoch        INTEGER NOT NULL,
    step         INTEGER NOT NULL,
    problem_id   VARCHAR NOT NULL,
    sample       INTEGER NOT NULL,          -- place in the group, from 0
    policy_step  INTEGER NOT NULL,          -- train steps that the sampling weights had seen
    stop_reason  VARCHAR NOT NULL,          -- stop | length | refused
    prompt       VARCHAR NOT NULL,          -- key of `prompts`
    n_prompt     INTEGER NOT NULL,          -- that the model read; as an endpoint counts them, which gives no tokens
    n_tokens     INTEGER NOT NULL,          -- that the model wrote, counted likewise; an episode's are those of all its turns
    text         VARCHAR NOT NULL,          -- what the model wrote, verbatim, behind what its prompt had opened: hostile, escape it before showing it
    recorded_at  TIMESTAMP NOT NULL,
    policy       VARCHAR NOT NULL,          -- student | teacher | endpoint (learning.warm_start_model): who wrote it
    ended        VARCHAR,                   -- why an episode ended: submitted | no call | cut | turns | tokens | seconds; NULL of a single-shot answer
    n_turns      INTEGER,                   -- turns of the model in an episode
    n_cached     INTEGER                    -- of the tokens that the model read (in all turns), those that the service bills as
                                            -- read from its cache; NULL: unknown, as of resumed episodes
);

-- Conversations: what a model wrote in each turn, and what each of its calls of tools gave (rtl_core/episodes).
CREATE TABLE messages (
    rollout     VARCHAR NOT NULL,           -- its row is written when the conversation has ended
    position    INTEGER NOT NULL,           -- order within the conversation, from 0; a turn is a message of the model and those that follow it
    who         VARCHAR NOT NULL,           -- model | tool | user (without tools: the grader's words on the answer before)
    text        VARCHAR NOT NULL,           -- what the model wrote, or what it was told: hostile, escape it before showing it
    thought     VARCHAR NOT NULL,           -- of the model, where its endpoint tells it apart
    call        JSON,                       -- of a tool: {id, name, arguments as the model wrote them}
    ok          BOOLEAN NOT NULL,           -- of a tool: it was carried out and no program failed; of the model: no limit of tokens cut it
    n_tokens    INTEGER NOT NULL,           -- that the model wrote
    seconds     DOUBLE NOT NULL,            -- on the clock
    used_s      DOUBLE NOT NULL,            -- of a tool: in which its programs computed or slept
    tokens_T    INTEGER[] NOT NULL,         -- of a model that samples here: what it wrote, token by token; empty of one at an endpoint
    logprobs_T  FLOAT[] NOT NULL USING COMPRESSION uncompressed,
    PRIMARY KEY (rollout, position)
);

-- Prompt tokens once, however many rollouts share them.
CREATE TABLE prompts (
    prompt    VARCHAR PRIMARY KEY,          -- hash of the tokens
    tokens_P  INTEGER[] NOT NULL
);

-- The completion's T tokens and the sampling policy's log-probabilities of them. Log-probabilities hardly compress, so to try
-- at every transaction would cost more than it saves. Of an episode they are all that follows its first prompt; at what tools gave every
-- log-probability is 0, the teacher's and the trainer's, too.
CREATE TABLE tokens (
    rollout     VARCHAR PRIMARY KEY,
    tokens_T    INTEGER[] NOT NULL,
    logprobs_T  FLOAT[] NOT NULL USING COMPRESSION uncompressed,
    own_T       BOOLEAN[]                   -- which of them the model sampled; NULL: all
);

-- The teacher's log-probabilities of the same T tokens.
CREATE TABLE teacher_tokens (
    rollout     VARCHAR PRIMARY KEY,
    logprobs_T  FLOAT[] NOT NULL USING COMPRESSION uncompressed
);

-- How a teacher with another tokenizer or chat template read the answer: its own tokens, its log-probabilities of them, and the spans of equal
-- text, four numbers each: first token and end (exclusive) among the student's T tokens, then among these. `teacher_tokens` follows from them.
CREATE TABLE teacher_readings (
    rollout     VARCHAR PRIMARY KEY,
    tokens_U    INTEGER[] NOT NULL,
    logprobs_U  FLOAT[] NOT NULL USING COMPRESSION uncompressed,
    spans       INTEGER[] NOT NULL
);

-- What the teacher would have written at a token with a KL of `learning.choices_stored_above` or more, where it was asked (distribution distillation).
CREATE TABLE teacher_choices (
    rollout     VARCHAR NOT NULL,
    position    INTEGER NOT NULL,           -- of the token in the answer, from 0
    tokens      INTEGER[] NOT NULL,         -- its first choices there, likeliest first
    logprobs    FLOAT[] NOT NULL
);

-- The trainer's log-probabilities of the same T tokens, before the step that trained on them. No row for an answer that was left out.
CREATE TABLE trainer_tokens (
    rollout     VARCHAR PRIMARY KEY,
    logprobs_T  FLOAT[] NOT NULL USING COMPRESSION uncompressed
);

-- Reverse KL(student || teacher) per token, by three estimators of r = log p_student - log p_teacher:
-- k1 = r; k2 = r^2 / 2; k3 = exp(-r) - 1 + r. Means over the rollout's tokens.
CREATE TABLE teacher_scores (
    rollout     VARCHAR PRIMARY KEY,
    run         VARCHAR NOT NULL,
    purpose     VARCHAR NOT NULL,
    evaluation  VARCHAR,
    epoch       INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    problem_id  VARCHAR NOT NULL,
    k1_mean     DOUBLE NOT NULL,
    k2_mean     DOUBLE NOT NULL,
    k3_mean     DOUBLE NOT NULL,
    n_tokens    INTEGER NOT NULL,
    teacher     VARCHAR,                    -- model or saved weights that scored; NULL in older histories: the run's only teacher
    hint        VARCHAR,                    -- what a student that scored itself was shown: golden | passed | verdict; NULL: nothing
    n_prompt    INTEGER                     -- tokens of the prompt that the teacher read, if not the answer's own
);

-- --------------------------------------------------------------------------------------- verdicts, rewards, advantages

CREATE TABLE verdicts (
    rollout       VARCHAR PRIMARY KEY,
    run           VARCHAR NOT NULL,
    purpose       VARCHAR NOT NULL,
    evaluation    VARCHAR,
    epoch         INTEGER NOT NULL,
    step          INTEGER NOT NULL,
    problem_id    VARCHAR NOT NULL,
    outcome       VARCHAR NOT NULL,         -- passed | tests_failed | compile_failed | interface_mismatch | no_answer
                                            -- | timeout | rejected | not_tested | infrastructure_error (graded again, never a reward)
    format_ok     BOOLEAN NOT NULL,         -- whether these stages passed, as in `verdict_stages`; here so that a question
    interface_ok  BOOLEAN NOT NULL,         -- about all rollouts reads one row of each
    syntax_ok     BOOLEAN NOT NULL,
    tests_passed  INTEGER NOT NULL,
    tests_total   INTEGER NOT NULL,
    reasons       VARCHAR[] NOT NULL,
    executor      VARCHAR NOT NULL,
    tools         JSON NOT NULL,
    seed          BIGINT NOT NULL,
    wall_s        DOUBLE NOT NULL,
    cpu_s         DOUBLE,                   -- of the simulators and all else that the grade started; NULL in older histories
    cpu_limit_s   DOUBLE,                   -- what it was allowed, where it ran out of CPU time or slept for as long
    cached        BOOLEAN NOT NULL,
    graded_at     TIMESTAMP NOT NULL
);

-- One row per stage of a verdict; a `skipped` stage was made pointless by an earlier one.
CREATE TABLE verdict_stages (
    rollout     VARCHAR NOT NULL,
    run         VARCHAR NOT NULL,
    purpose     VARCHAR NOT NULL,
    evaluation  VARCHAR,
    epoch       INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    problem_id  VARCHAR NOT NULL,
    position    INTEGER NOT NULL,           -- order within the verdict, from 0
    stage       VARCHAR NOT NULL,           -- format | interface | syntax | tests
    status      VARCHAR NOT NULL,           -- passed | failed | skipped
    reasons     VARCHAR[] NOT NULL,
    wall_s      DOUBLE NOT NULL
);

-- One row per difference between the interface demanded and the one written.
CREATE TABLE interface_mismatches (
    rollout     VARCHAR NOT NULL,
    run         VARCHAR NOT NULL,
    purpose     VARCHAR NOT NULL,
    evaluation  VARCHAR,
    epoch       INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    problem_id  VARCHAR NOT NULL,
    position    INTEGER NOT NULL,
    kind        VARCHAR NOT NULL,           -- wrong_module | missing_port | extra_port | wrong_direction | wrong_width | ...
    name        VARCHAR NOT NULL,           -- of the port, parameter or module
    expected    VARCHAR,
    got         VARCHAR
);

CREATE TABLE rewards (
    rollout     VARCHAR PRIMARY KEY,
    run         VARCHAR NOT NULL,
    purpose     VARCHAR NOT NULL,
    evaluation  VARCHAR,
    epoch       INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    problem_id  VARCHAR NOT NULL,
    total       DOUBLE NOT NULL             -- sum over terms of weight * value, or the problem's ceiling where that is less
);

CREATE TABLE reward_terms (
    rollout     VARCHAR NOT NULL,
    run         VARCHAR NOT NULL,
    purpose     VARCHAR NOT NULL,
    evaluation  VARCHAR,
    epoch       INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    problem_id  VARCHAR NOT NULL,
    term        VARCHAR NOT NULL,
    weight      DOUBLE NOT NULL,
    value       DOUBLE NOT NULL             -- before weighting; one row per registered term, also of weight 0, so that other
                                            -- weights can be tried on stored rollouts
);

-- What an answer is trained on, as the algorithm credited its group (rtl_core/algorithms). The teacher's part is per token and
-- follows from `tokens` and `teacher_tokens`; with `learning.permute_advantages` each answer was given another one's.
CREATE TABLE advantages (
    rollout     VARCHAR PRIMARY KEY,
    run         VARCHAR NOT NULL,
    purpose     VARCHAR NOT NULL,
    evaluation  VARCHAR,
    epoch       INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    problem_id  VARCHAR NOT NULL,
    advantage   DOUBLE NOT NULL,            -- scalar, `learning.reward_weight` included; of a warm start 1 where it is imitated
    reward      DOUBLE,                     -- less the penalty of a cut answer
    counts      BOOLEAN                     -- false: masked, no part of the baseline and of the loss
);

-- Stored rollouts graded again with other tools or another seed. `verdicts` stays what training saw.
CREATE TABLE regrades (
    label         VARCHAR NOT NULL,         -- names one regrading
    rollout       VARCHAR NOT NULL,
    run           VARCHAR NOT NULL,
    problem_id    VARCHAR NOT NULL,
    outcome       VARCHAR NOT NULL,
    tests_passed  INTEGER NOT NULL,
    tests_total   INTEGER NOT NULL,
    executor      VARCHAR NOT NULL,
    tools         JSON NOT NULL,
    seed          BIGINT NOT NULL,
    verdict       JSON NOT NULL,            -- the whole Verdict
    graded_at     TIMESTAMP NOT NULL,
    PRIMARY KEY (label, rollout)
);

-- Passed rollouts, held against the golden answer or against other passes: was the pass deserved?
CREATE TABLE audits (
    rollout       VARCHAR PRIMARY KEY,
    run           VARCHAR NOT NULL,
    problem_id    VARCHAR NOT NULL,
    result        VARCHAR NOT NULL,         -- equal (proved) | same (not told apart) | different (doubtful) | unknown
    detail        VARCHAR NOT NULL,         -- how many inputs were tried, the first difference, or why nothing is known
    key           VARCHAR NOT NULL,         -- hash of golden answer, effort and tools; another one is audited anew
    executor      VARCHAR NOT NULL,
    tools         JSON NOT NULL,
    audited_at    TIMESTAMP NOT NULL,
    method        VARCHAR,                  -- proof | simulation | consensus (no golden answer; other passes)
    share         DOUBLE,                   -- by consensus: share of the independent texts that behave alike
    depth         BIGINT,                   -- clock cycles for which equality is proved, where it is for so many alone
    cpu_s         DOUBLE,
    trace         JSON,                     -- the shortest inputs that show a difference: [{input: value}, ...]
    cells           BIGINT,                 -- after synthesis to gates of two inputs; registers included
    flip_flops      BIGINT,
    levels          BIGINT,                 -- cells on the longest path without a register
    relative_area   DOUBLE,                 -- cells relative to the golden answer, or to the median of the passes that behave alike
    relative_levels DOUBLE
);

-- Verdicts by what was graded (problem, answer, tools, seed), whoever wrote the answer.
CREATE TABLE verdict_cache (
    key        VARCHAR PRIMARY KEY,
    verdict    JSON NOT NULL,
    stored_at  TIMESTAMP NOT NULL
);

-- Views
-- The daily questions. Training rollouts unless said otherwise; infrastructure errors are nobody's answer and left out.

-- Unbiased pass@k of one problem with n samples of which c passed (Chen et al. 2021): 1 - C(n-c, k) / C(n, k).
CREATE OR REPLACE MACRO pass_at_k(n, c, k) AS
    CASE WHEN k > n THEN NULL
         WHEN n - c < k THEN 1.0
         ELSE 1.0 - exp(lgamma(n - c + 1) - lgamma(n - c - k + 1) - lgamma(n + 1) + lgamma(n - k + 1)) END;

-- Pass rate by epoch and difficulty, with the mean share of tests passed.
CREATE OR REPLACE VIEW pass_by_epoch_difficulty AS
SELECT v.run, v.epoch, p.difficulty,
       count(*) AS rollouts,
       avg(CAST(v.outcome = 'passed' AS INTEGER)) AS pass_rate,
       avg(CASE WHEN v.tests_total > 0 THEN v.tests_passed / v.tests_total ELSE 0 END) AS tests_passed_share
FROM verdicts v JOIN run_problems p ON p.run = v.run AND p.problem_id = v.problem_id
WHERE v.purpose = 'train' AND v.outcome <> 'infrastructure_error'
GROUP BY v.run, v.epoch, p.difficulty;

-- Outcomes, pass rate and mean reward by step.
CREATE OR REPLACE VIEW outcomes_by_step AS
SELECT run, epoch, step, outcome, count(*) AS rollouts
FROM verdicts WHERE purpose = 'train'
GROUP BY run, epoch, step, outcome;

CREATE OR REPLACE VIEW pass_by_step AS
SELECT run, epoch, step, count(*) AS rollouts, avg(CAST(outcome = 'passed' AS INTEGER)) AS pass_rate
FROM verdicts WHERE purpose = 'train' AND outcome <> 'infrastructure_error'
GROUP BY run, epoch, step;

CREATE OR REPLACE VIEW reward_by_step AS
SELECT run, epoch, step, count(*) AS rollouts, avg(total) AS reward
FROM rewards WHERE purpose = 'train'
GROUP BY run, epoch, step;

-- What each reward term is worth, one row a term, whether or not the run gave it a weight.
CREATE OR REPLACE VIEW term_values AS
SELECT rollout, run, purpose, evaluation, epoch, step, problem_id, term, value FROM reward_terms;

-- Training rewards of a run under other weights, a JSON object: term -> weight.
CREATE OR REPLACE MACRO rewards_under(of_run, weights) AS TABLE
WITH mine AS (SELECT * FROM term_values WHERE run = of_run AND purpose = 'train'),
given AS (SELECT key AS term, CAST(value AS DOUBLE) AS weight FROM json_each(weights)),
known AS (SELECT string_agg(DISTINCT term, ', ' ORDER BY term) AS terms FROM mine),
unknown AS (SELECT string_agg(term, ', ') AS terms FROM given WHERE term NOT IN (SELECT term FROM mine)),
checked AS (
    SELECT CASE WHEN unknown.terms IS NOT NULL THEN error('unknown reward term ' || unknown.terms || '; stored: ' || known.terms) END AS complaint
    FROM known, unknown)
SELECT rollout, epoch, step, problem_id, coalesce(sum(weight * value), 0) AS reward
FROM mine LEFT JOIN given USING (term) WHERE (SELECT complaint FROM checked) IS NULL
GROUP BY rollout, epoch, step, problem_id;

-- Mean reward term by step: `value` before, `contribution` after weighting.
CREATE OR REPLACE VIEW reward_terms_by_step AS
SELECT run, epoch, step, term, avg(value) AS value, avg(weight) AS weight, avg(weight * value) AS contribution
FROM reward_terms WHERE purpose = 'train'
GROUP BY run, epoch, step, term;

-- Reverse KL to the teacher by step, mean over tokens.
CREATE OR REPLACE VIEW teacher_kl_by_step AS
SELECT run, epoch, step, count(*) AS rollouts, sum(n_tokens) AS tokens,
       sum(k1_mean * n_tokens) / sum(n_tokens) AS k1,
       sum(k2_mean * n_tokens) / sum(n_tokens) AS k2,
       sum(k3_mean * n_tokens) / sum(n_tokens) AS k3
FROM teacher_scores WHERE purpose = 'train' AND n_tokens > 0
GROUP BY run, epoch, step;

-- How far answers get: of those graded, how many passed each stage.
CREATE OR REPLACE VIEW stage_funnel AS
SELECT run, epoch, stage, min(position) AS position,
       count(*) AS rollouts,
       count(*) FILTER (WHERE status <> 'skipped') AS reached,
       count(*) FILTER (WHERE status = 'passed') AS passed,
       avg(CAST(status = 'passed' AS INTEGER)) AS passed_share
FROM verdict_stages WHERE purpose = 'train'
GROUP BY run, epoch, stage;

-- Interface mistakes: how often each was made, in how many rollouts and problems, and one rollout to look at.
CREATE OR REPLACE VIEW interface_mistakes AS
SELECT run, kind, name, expected, got,
       count(DISTINCT rollout) AS rollouts, count(DISTINCT problem_id) AS problems, max(step) AS last_step,
       arg_max(rollout, step) AS example
FROM interface_mismatches WHERE purpose = 'train'
GROUP BY run, kind, name, expected, got;

-- One row per group (one problem in one step): how many of its samples passed, and whether any has an advantage (NULL: none recorded).
CREATE OR REPLACE VIEW group_record AS
SELECT v.run, v.epoch, v.step, v.problem_id, count(*) AS samples,
       count(*) FILTER (WHERE v.outcome = 'passed') AS passed,
       avg(r.total) AS reward, stddev_pop(r.total) AS reward_sd, bool_or(a.advantage <> 0) AS signal
FROM verdicts v LEFT JOIN rewards r USING (rollout) LEFT JOIN advantages a USING (rollout)
WHERE v.purpose = 'train' AND v.outcome <> 'infrastructure_error'
GROUP BY v.run, v.epoch, v.step, v.problem_id;

-- Group mix by step: all good, mixed, all bad, and those whose equal rewards teach nothing but the KL.
CREATE OR REPLACE VIEW group_mix AS
SELECT run, epoch, step, count(*) AS groups,
       count(*) FILTER (WHERE passed = samples) AS all_good,
       count(*) FILTER (WHERE passed > 0 AND passed < samples) AS mixed,
       count(*) FILTER (WHERE passed = 0) AS all_bad,
       count(*) FILTER (WHERE NOT signal) AS no_signal
FROM group_record
GROUP BY run, epoch, step;

-- Each problem's record over the whole run.
CREATE OR REPLACE VIEW problem_record AS
SELECT v.run, v.problem_id, p.difficulty, p.family, p.category, p.split,
       count(*) AS rollouts, count(*) FILTER (WHERE v.outcome = 'passed') AS passed,
       avg(CAST(v.outcome = 'passed' AS INTEGER)) AS pass_rate, mode(v.outcome ORDER BY v.outcome) AS usual_outcome,
       min(v.step) AS first_step, max(v.step) AS last_step
FROM verdicts v JOIN run_problems p ON p.run = v.run AND p.problem_id = v.problem_id
WHERE v.purpose = 'train' AND v.outcome <> 'infrastructure_error'
GROUP BY v.run, v.problem_id, p.difficulty, p.family, p.category, p.split;

CREATE OR REPLACE VIEW never_solved AS
SELECT * FROM problem_record WHERE passed = 0;

-- Wall seconds by stage; stages overlap, so shares may add up to more than 1.
CREATE OR REPLACE VIEW time_by_stage AS
SELECT run, stage, count(*) AS steps, sum(seconds) AS seconds, avg(seconds) AS mean_s,
       sum(seconds) / sum(sum(seconds) FILTER (WHERE stage = 'total')) OVER (PARTITION BY run) AS share_of_total
FROM step_times
GROUP BY run, stage;

-- Problems by evaluation: samples, passes.
CREATE OR REPLACE VIEW evaluation_problems AS
SELECT run, evaluation, problem_id, count(*) AS samples, count(*) FILTER (WHERE outcome = 'passed') AS passed
FROM verdicts WHERE purpose = 'evaluation' AND outcome <> 'infrastructure_error'
GROUP BY run, evaluation, problem_id;

-- Stages by evaluation: the share of all answers that passed each.
CREATE OR REPLACE VIEW evaluation_stages AS
SELECT run, evaluation, stage, min(position) AS position, count(*) AS rollouts,
       avg(CAST(status = 'passed' AS INTEGER)) AS passed_share
FROM verdict_stages WHERE purpose = 'evaluation'
GROUP BY run, evaluation, stage;

-- Regraded rollouts whose outcome differs from the one that training saw.
CREATE OR REPLACE VIEW changed_verdicts AS
SELECT g.label, g.run, g.rollout, g.problem_id, v.outcome AS was, g.outcome AS now,
       v.executor AS was_executor, g.executor AS now_executor
FROM regrades g JOIN verdicts v USING (rollout)
WHERE g.outcome <> v.outcome;

-- Episodes, one row each: conversations with tools, apart from answers of one turn at an endpoint. Of the seconds `model_s` and `tools_s` are on the
-- clock, waits for a core included; in `sandbox_s` programs computed or slept. `ended` is how it ended; the last three are bounds (config/episode.py).
CREATE OR REPLACE VIEW episodes AS
WITH conversations AS (
    SELECT rollout, count(*) FILTER (WHERE who = 'model') AS turns, count(*) FILTER (WHERE who = 'tool') AS calls,
           count(*) FILTER (WHERE who = 'tool' AND NOT ok) AS failed_calls, CAST(sum(n_tokens) AS BIGINT) AS tokens, sum(used_s) AS sandbox_s,
           coalesce(sum(seconds) FILTER (WHERE who = 'model'), 0) AS model_s, coalesce(sum(seconds) FILTER (WHERE who = 'tool'), 0) AS tools_s,
           bool_or(who = 'tool' AND ok AND call ->> '$.name' = 'submit') AS submitted, bool_or(who = 'model' AND NOT ok) AS cut,
           arg_max(who, position) AS last
    FROM messages GROUP BY rollout)
SELECT c.rollout, r.run, r.purpose, r.evaluation, r.epoch, r.step, r.problem_id, r.sample, c.turns, c.calls, c.failed_calls, c.tokens, c.model_s,
       c.tools_s, c.sandbox_s, v.outcome, v.outcome = 'passed' AS passed,
       CASE WHEN r.ended IS NOT NULL THEN r.ended -- not known of those that schema 15 recorded
            WHEN c.submitted THEN 'submitted' WHEN c.cut THEN 'cut' WHEN c.last = 'model' THEN 'no call'
            WHEN c.turns >= coalesce(e.turns, CAST(n.config ->> '$.episode.turns' AS INTEGER)) THEN 'turns'
            WHEN c.tokens >= CAST(n.config ->> '$.episode.tokens' AS BIGINT) THEN 'tokens' ELSE 'seconds' END AS ended
FROM conversations c JOIN rollouts r USING (rollout) JOIN runs n ON n.run = r.run LEFT JOIN evaluations e ON e.evaluation = r.evaluation
LEFT JOIN verdicts v ON v.rollout = c.rollout
WHERE c.calls > 0 OR r.ended IS NOT NULL OR r.evaluation IS NULL OR e.turns IS NOT NULL;

-- Mistakes by name, one row per answer and mistake: what was expected and what stood there instead. Interface mistakes are told apart by
-- what they concern; of answers that fail tests the failing checks are named, after the problem's family.
CREATE OR REPLACE MACRO is_reset(name) AS regexp_matches(name, '(^|_)[asn]?(rst|reset|clr|clear)(_?[nblh])?(_i|_in)?$', 'i');
CREATE OR REPLACE MACRO is_clock(name) AS regexp_matches(name, '(^|_)(m|sys|p)?(clk|clock|ck)(_i)?$', 'i');
CREATE OR REPLACE MACRO is_low(name) AS regexp_matches(name, '(^|_)n(rst|reset|clr|clear)|(n|_b|_l)(_i|_in)?$', 'i');
CREATE OR REPLACE VIEW named_mistakes AS
WITH extra AS (
    SELECT rollout, list(name ORDER BY position) AS names FROM interface_mismatches WHERE kind = 'extra_port' GROUP BY rollout),
wrong AS (
    SELECT m.*, coalesce(e.names, CAST([] AS VARCHAR[])) AS extras,
           bool_or(m.kind = 'missing_port') OVER (PARTITION BY m.rollout) AS misses
    FROM interface_mismatches m LEFT JOIN extra e USING (rollout)),
paired AS (
    SELECT *, CASE WHEN is_reset(name) THEN list_filter(extras, lambda x: is_reset(x))
                   WHEN is_clock(name) THEN list_filter(extras, lambda x: is_clock(x))
                   ELSE list_filter(extras, lambda x: NOT is_reset(x) AND NOT is_clock(x)) END AS instead
    FROM wrong)
SELECT rollout, run, purpose, evaluation, epoch, step, problem_id,
       CASE kind WHEN 'wrong_module' THEN 'module name' WHEN 'wrong_direction' THEN 'direction' WHEN 'wrong_width' THEN 'width'
                 WHEN 'wrong_type' THEN 'type'
                 WHEN 'extra_port' THEN 'port too many'
                 WHEN 'missing_port' THEN
                     CASE WHEN is_reset(name) AND len(instead) > 0 AND is_low(name) <> is_low(instead[1]) THEN 'reset polarity'
                          WHEN is_reset(name) AND len(instead) > 0 THEN 'reset name'
                          WHEN is_clock(name) AND len(instead) > 0 THEN 'clock name'
                          WHEN len(instead) > 0 THEN 'port name' ELSE 'port missing' END
                 ELSE 'parameter' END AS mistake,
       CASE kind WHEN 'extra_port' THEN NULL WHEN 'missing_port' THEN name WHEN 'wrong_module' THEN expected
                 ELSE name || ': ' || coalesce(expected, '?') END AS expected,
       CASE kind WHEN 'extra_port' THEN name WHEN 'missing_port' THEN array_to_string(instead[1:3], ', ') ELSE got END AS got
FROM paired WHERE NOT (kind = 'extra_port' AND misses)
UNION ALL
SELECT v.rollout, v.run, v.purpose, v.evaluation, v.epoch, v.step, v.problem_id,
       CASE WHEN regexp_matches(v.check_name, 'reset|rst', 'i') THEN 'reset behaviour'
            WHEN regexp_matches(v.check_name, 'order|endian|msb|lsb|priority', 'i') THEN 'bit order' ELSE 'failing check' END,
       coalesce(p.family, p.category) || ': ' || v.check_name, NULL
FROM (SELECT *, regexp_replace(trim(split_part(unnest(reasons), ':', 1)), '^.*\.', '') AS check_name FROM verdicts WHERE outcome = 'tests_failed') v
LEFT JOIN run_problems p ON p.run = v.run AND p.problem_id = v.problem_id
WHERE length(v.check_name) BETWEEN 1 AND 60;

-- What kind of failing: exactly one level for each failed answer, by rules over its verdict, the first that holds. Counts are those that the harness
-- itself tells (docs/grading.md, "What kind of failing"), VerilogEval's among them; where it tells none, the share of wrong checks is that of failing tests. `solvable`: another
-- answer of the run solved the problem.
CREATE OR REPLACE MACRO records(reasons) AS list_transform(list_filter(reasons, lambda r: contains(r, '[checks=')), lambda r: regexp_extract(r,
    '\[checks=(\d+) wrong=(\d+)(?: unknown=(\d+))?(?: starts=(\d+) at_reset=(\d+))?(?: off=(\d+) late=(\d+) early=(\d+))?',
    ['checks', 'wrong', 'unknown', 'starts', 'at_reset', 'off', 'late', 'early']));
CREATE OR REPLACE VIEW failure_levels AS
WITH failed AS (
    SELECT *, array_to_string(reasons, chr(10)) AS words, CASE WHEN outcome = 'tests_failed' THEN records(reasons) ELSE [] END AS records
    FROM verdicts WHERE outcome NOT IN ('passed', 'not_tested', 'infrastructure_error')),
told AS (
    SELECT *, coalesce(list_sum(list_transform(records, lambda r: TRY_CAST(r.checks AS INTEGER))),
                    TRY_CAST(regexp_extract(words, 'Mismatches: \d+ in (\d+) samples', 1) AS INTEGER)) AS checks,
           coalesce(list_sum(list_transform(records, lambda r: TRY_CAST(r.wrong AS INTEGER))),
                    TRY_CAST(regexp_extract(words, 'Mismatches: (\d+) in \d+ samples', 1) AS INTEGER)) AS wrong,
           list_sum(list_transform(records, lambda r: TRY_CAST(r.unknown AS INTEGER))) AS unknown,
           list_sum(list_transform(records, lambda r: TRY_CAST(r.starts AS INTEGER))) AS starts,
           list_sum(list_transform(records, lambda r: TRY_CAST(r.at_reset AS INTEGER))) AS at_reset,
           list_sum(list_transform(records, lambda r: TRY_CAST(r.off AS INTEGER))) AS off,
           least(list_sum(list_transform(records, lambda r: TRY_CAST(r.late AS INTEGER))),
                 list_sum(list_transform(records, lambda r: TRY_CAST(r.early AS INTEGER)))) AS shifted
    FROM failed)
SELECT rollout, run, purpose, evaluation, epoch, step, problem_id,
       CASE WHEN outcome = 'no_answer' THEN 'no answer'
            WHEN outcome = 'rejected' THEN 'refused'
            WHEN outcome = 'compile_failed' AND regexp_matches(words, 'syntax error|[Mm]alformed|I give up') THEN 'does not parse'
            WHEN outcome = 'interface_mismatch' THEN 'wrong interface'
            WHEN outcome = 'timeout' OR regexp_matches(words, '^\S+ (used|started|wrote) more than ', 'm') THEN 'times out'
            WHEN outcome = 'compile_failed' THEN 'does not elaborate'
            WHEN unknown >= 0.9 * wrong OR unknown IS NULL AND regexp_matches(words,
                 '(is|got|actual|received)\W+(\w+ ?[=:] ?)?(0b)?([xz]+|1[xz]|[01]{2,}[xz])[01xz]*\b|is \d+''b|Logic(Array)?\(.[01]*[xz]|non-0/1|unresolvable', 'i') THEN 'X on outputs'
            WHEN off >= 3 AND shifted <= 0.2 * off THEN 'off by a cycle'
            WHEN at_reset >= greatest(1, starts / 6) OR at_reset > 0 AND unknown > 0
                 OR wrong IS NULL AND regexp_matches(split_part(split_part(words, chr(10), 1), '; after ', 1), 'reset|rst', 'i') THEN 'reset wrong'
            WHEN wrong <= 0.05 * checks THEN 'wrong in corner values only'
            WHEN coalesce(wrong / checks, 1 - tests_passed / greatest(1, tests_total)) <= 0.5 THEN 'wrong in some checks'
            ELSE 'wrong in most checks' END AS level,
       EXISTS (SELECT 1 FROM verdicts o WHERE o.run = told.run AND o.problem_id = told.problem_id AND o.outcome = 'passed') AS solvable
FROM told;
