-- Passed rollouts, simulated beside the golden answer.
CREATE TABLE audits (
    rollout       VARCHAR PRIMARY KEY,
    run           VARCHAR NOT NULL,
    problem_id    VARCHAR NOT NULL,
    result        VARCHAR NOT NULL,
    detail        VARCHAR NOT NULL,
    key           VARCHAR NOT NULL,
    executor      VARCHAR NOT NULL,
    tools         JSON NOT NULL,
    audited_at    TIMESTAMP NOT NULL
);
