"""From an address to obstore's client."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from qo.errors import SettingsError
from qo.store.bucket.address import Address

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

CONNECT_SECONDS = 5.0
ENDPOINT_NAMES = {"s3": ("endpoint", "aws_endpoint_url_s3"), "gs": ("base_url",), "az": ("endpoint",)}
"""Under both of its names on S3, or an endpoint from the environment would win over the url's."""


def client_for(address: Address, *, request_seconds: float) -> ObjectStore:
    """What the address leaves open, credentials above all, the driver takes from the usual environment."""
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    config: Any = dict(address.options)
    if address.endpoint is not None:
        config |= dict.fromkeys(ENDPOINT_NAMES[address.scheme], address.endpoint)
    client: ClientConfig = {
        "allow_http": address.plain_http,
        "connect_timeout": timedelta(seconds=min(CONNECT_SECONDS, request_seconds)),
        "timeout": timedelta(seconds=request_seconds),
    }
    # It would send a write again without looking whether the first one had arrived.
    retry: RetryConfig = {"max_retries": 0}
    try:
        match address.scheme:
            case "s3":
                # Some servers know only the deletion of one object.
                config["disable_bulk_delete"] = True
                return S3Store(address.bucket, config=config, client_options=client, retry_config=retry)
            case "gs":
                return GCSStore(address.bucket, config=config, client_options=client, retry_config=retry)
            case _:
                return AzureStore(address.bucket, config=config, client_options=client, retry_config=retry)
    except (BaseError, ValueError) as wrong:
        said = str(wrong).partition("\n")[0]
        raise SettingsError(f"concurrency.store {address} cannot be used: {said}.") from None
