CREATE TABLE trainer_tokens (
    rollout     VARCHAR PRIMARY KEY,
    logprobs_T  FLOAT[] NOT NULL USING COMPRESSION uncompressed
);
