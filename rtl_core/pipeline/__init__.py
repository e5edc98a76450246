"""One run's life without Prefect: open what it needs, work through groups and steps, record each result.

`flows/` says in which order, `tasks/` adds names and retries, and each task calls one function of this room.
"""
