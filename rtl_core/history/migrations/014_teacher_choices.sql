CREATE TABLE teacher_choices (
    rollout     VARCHAR NOT NULL,
    position    INTEGER NOT NULL,
    tokens      INTEGER[] NOT NULL,
    logprobs    FLOAT[] NOT NULL
);
