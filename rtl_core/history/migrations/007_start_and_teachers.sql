-- A run may start from saved weights, and may have several teachers. Older runs did neither: NULL says so.
ALTER TABLE runs ADD COLUMN start_state VARCHAR;
ALTER TABLE runs ADD COLUMN start_sampler VARCHAR;
ALTER TABLE teacher_scores ADD COLUMN teacher VARCHAR;
