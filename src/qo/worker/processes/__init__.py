"""Processes of a worker, for the handlers of tasks with `process=True`."""
