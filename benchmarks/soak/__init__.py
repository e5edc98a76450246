"""A long run under faults, compared with an undisturbed one; see __main__.py."""
