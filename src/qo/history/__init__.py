"""What ran, for whom, and who changed what: from a store's outbox into PostgreSQL, and read from there."""
