"""Numbered slots on object storage: limits that many machines share without a database between them."""

from qo.store.bucket.lease import SlotLease
from qo.store.bucket.slots import BucketSlots

__all__ = ["BucketSlots", "SlotLease"]
