"""Checks that a bucket enforces conditional writes.

Some servers accept the conditions and ignore them: there, every contender for a slot would get it.
"""

from __future__ import annotations

import logging

from qo.errors import StoreUnavailable
from qo.ids import new_mark
from qo.store.bucket.keys import PROBES
from qo.store.bucket.objects import Objects, Outcome

log = logging.getLogger("qo.store")


async def probe(objects: Objects) -> None:
    """Raise `StoreUnavailable` for a bucket that does not enforce conditions. Leaves no object behind."""
    # A unique name, so that many processes can probe at once, and the deletion needs no condition.
    key = f"{PROBES}/{new_mark()}"
    created = await objects.write(key, _body(), expected=None)
    try:
        await _try_conditions(objects, key, created)
    finally:
        try:
            await objects.remove(key)
        except StoreUnavailable as error:
            log.warning("the object %s of a probe was left behind: %s", key, error)


async def _try_conditions(objects: Objects, key: str, created: Outcome) -> None:
    if not created.written or created.stored is None:
        raise _refused(objects, "a new object was not the one that had just been written")
    if not created.stored.condition:
        raise _refused(objects, "it gives objects no ETag to make a condition of")
    if not await objects.refuses(key, _body(), expected=None):
        raise _refused(objects, "it wrote over an object that was only to be created (If-None-Match: *)")
    updated = await objects.write(key, _body(), expected=created.stored)
    if not updated.written:
        raise _refused(objects, "it refused a write whose ETag was right (If-Match)")
    if not await objects.refuses(key, _body(), expected=created.stored):
        raise _refused(objects, "it wrote over an object that had changed since (If-Match with a stale ETag)")


def _refused(objects: Objects, what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"The bucket {objects.address} does not keep conditions: {what}. Limits would be exceeded there; use a store "
        "with conditional writes, such as Amazon S3, Google Cloud Storage, Azure Blob Storage, R2 or a current MinIO."
    )


def _body() -> bytes:
    return f'{{"mark":"{new_mark()}"}}'.encode()
