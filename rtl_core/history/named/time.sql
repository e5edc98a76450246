-- Wall seconds of all training steps by stage; stages overlap.
SELECT stage, steps, seconds, mean_s, share_of_total FROM time_by_stage WHERE run = $run ORDER BY seconds DESC
