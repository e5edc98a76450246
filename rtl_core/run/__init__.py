"""The life cycle of a run without Prefect: check, open, lock, limit, end; its folder, its saved weights and
its row in the history."""
