-- Mean reverse KL to the teacher by training step, nats per token, three estimators.
SELECT epoch + 1 AS epoch, step, rollouts, tokens, k1, k2, k3 FROM teacher_kl_by_step WHERE run = $run ORDER BY step
