"""Tests of this room use a queue on every store, and estimators a scene."""

from tests.queue.estimator_scene import scene
from tests.queues import overrides, queue, store_under_test, worker

__all__ = ["overrides", "queue", "scene", "store_under_test", "worker"]
