ALTER TABLE evaluations ADD COLUMN turns INTEGER;
CREATE TABLE messages (
    rollout     VARCHAR NOT NULL,
    position    INTEGER NOT NULL,
    who         VARCHAR NOT NULL,
    text        VARCHAR NOT NULL,
    thought     VARCHAR NOT NULL,
    call        JSON,
    ok          BOOLEAN NOT NULL,
    n_tokens    INTEGER NOT NULL,
    seconds     DOUBLE NOT NULL,
    used_s      DOUBLE NOT NULL,
    tokens_T    INTEGER[] NOT NULL,
    logprobs_T  FLOAT[] NOT NULL USING COMPRESSION uncompressed,
    PRIMARY KEY (rollout, position)
);
