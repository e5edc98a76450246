-- All runs with their state, newest first.
SELECT run, status, created_at, finished_at, student, teacher,
       (SELECT count(*) FROM steps s WHERE s.run = r.run AND s.status = 'trained') AS trained_steps,
       (SELECT count(*) FROM steps s WHERE s.run = r.run) AS planned_steps, message
FROM runs r ORDER BY created_at DESC
