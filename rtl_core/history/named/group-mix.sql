-- Groups whose training answers all pass, some pass, none passes, and groups with equal rewards, by step.
SELECT epoch + 1 AS epoch, step, groups, all_good, mixed, all_bad, no_signal FROM group_mix WHERE run = $run ORDER BY step
