-- A student may be its own teacher, with a hint in its prompt. In older runs none was: NULL says so.
ALTER TABLE teacher_scores ADD COLUMN hint VARCHAR;
ALTER TABLE teacher_scores ADD COLUMN n_prompt INTEGER;
