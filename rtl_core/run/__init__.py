"""One run's life without Prefect: opened, checked, locked, limited, ended; its folder, its saved weights and its row in the history."""
