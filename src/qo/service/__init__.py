"""HTTP over the queue: it decides nothing, it asks the queue and answers."""
