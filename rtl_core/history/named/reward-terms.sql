-- Mean of each reward term by training step, unweighted and weighted.
SELECT epoch + 1 AS epoch, step, term, weight, value, contribution FROM reward_terms_by_step WHERE run = $run ORDER BY step, term
