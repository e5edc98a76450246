"""Files that every starter harness carries word for word; they run inside the harness, never in this package."""
