-- Frozen: the tables as version 1 was released. Never edit this file; a change of schema.sql needs a migration.
CREATE TABLE schema_version (
    version     INTEGER PRIMARY KEY,        -- one row per version that this file has been through
    applied_at  TIMESTAMP NOT NULL,
    written_by  VARCHAR NOT NULL,           -- package version that created or migrated the file
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
    message       VARCHAR                   -- why it stopped, if it did
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
    split        VARCHAR NOT NULL,          -- train | heldout | left_out ...
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
    step          INTEGER NOT NULL,         -- counts through the whole run
    epoch         INTEGER NOT NULL,
    status        VARCHAR NOT NULL,         -- planned | trained
    planned_at    TIMESTAMP NOT NULL,
    trained_at    TIMESTAMP,
    state_path    VARCHAR,                  -- weights and optimiser after this step
    sampler_path  VARCHAR,                  -- weights to sample from after this step
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
    stage    VARCHAR NOT NULL,              -- sample | grade | score | train | store | total; stages overlap
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
    finished_at    TIMESTAMP
);

-- ------------------------------------------------------------------------------------------------------------- rollouts

CREATE TABLE rollouts (
    rollout      VARCHAR PRIMARY KEY,
    run          VARCHAR NOT NULL,
    purpose      VARCHAR NOT NULL,          -- train | evaluation
    evaluation   VARCHAR,                   -- NULL for training
    epoch        INTEGER NOT NULL,
    step         INTEGER NOT NULL,
    problem_id   VARCHAR NOT NULL,
    sample       INTEGER NOT NULL,          -- place in the group, from 0
    policy_step  INTEGER NOT NULL,          -- train steps that the sampling weights had seen
    stop_reason  VARCHAR NOT NULL,          -- stop | length
    prompt       VARCHAR NOT NULL,          -- key of `prompts`
    n_prompt     INTEGER NOT NULL,
    n_tokens     INTEGER NOT NULL,
    text         VARCHAR NOT NULL,          -- what the model wrote, verbatim: hostile, escape it before showing it
    recorded_at  TIMESTAMP NOT NULL
);

-- Prompt tokens once, however many rollouts share them.
CREATE TABLE prompts (
    prompt    VARCHAR PRIMARY KEY,          -- hash of the tokens
    tokens_P  INTEGER[] NOT NULL
);

-- The completion's T tokens and the sampling policy's log-probabilities of them. Log-probabilities hardly compress, so to try
-- at every transaction would cost more than it saves.
CREATE TABLE tokens (
    rollout     VARCHAR PRIMARY KEY,
    tokens_T    INTEGER[] NOT NULL,
    logprobs_T  FLOAT[] NOT NULL USING COMPRESSION uncompressed
);

-- The teacher's log-probabilities of the same T tokens.
CREATE TABLE teacher_tokens (
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
    n_tokens    INTEGER NOT NULL
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
                                            -- | timeout | rejected | infrastructure_error (graded again, never a reward)
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
    total       DOUBLE NOT NULL             -- sum over terms of weight * value
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
    value       DOUBLE NOT NULL             -- before weighting, so that other weights can be tried on stored rollouts
);

-- Group-centred scalar advantage; the teacher's part is per token and follows from `tokens` and `teacher_tokens`.
CREATE TABLE advantages (
    rollout     VARCHAR PRIMARY KEY,
    run         VARCHAR NOT NULL,
    purpose     VARCHAR NOT NULL,
    evaluation  VARCHAR,
    epoch       INTEGER NOT NULL,
    step        INTEGER NOT NULL,
    problem_id  VARCHAR NOT NULL,
    advantage   DOUBLE NOT NULL
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

-- Verdicts by what was graded (problem, answer, tools, seed), whoever wrote the answer.
CREATE TABLE verdict_cache (
    key        VARCHAR PRIMARY KEY,
    verdict    JSON NOT NULL,
    stored_at  TIMESTAMP NOT NULL
);

