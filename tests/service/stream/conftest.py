"""Tests of this room use a queue on every store."""

from tests.queues import overrides, queue, store_under_test, worker

__all__ = ["overrides", "queue", "store_under_test", "worker"]
