"""What a server, and a worker, report to Prometheus."""

from qo.service.metrics.exposition import CONTENT_TYPE
from qo.service.metrics.numbers import StreamCounts
from qo.service.metrics.queue_metrics import QueueMetrics

__all__ = ["CONTENT_TYPE", "QueueMetrics", "StreamCounts"]
