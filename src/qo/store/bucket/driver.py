"""The client of the library obstore for an address."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from qo.errors import SettingsError
from qo.store.bucket.address import BucketAddress

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

CONNECT_SECONDS = 5.0
ENDPOINT_NAMES = {"s3": ("endpoint", "aws_endpoint_url_s3"), "gs": ("base_url",), "az": ("endpoint",)}
"""The driver's names for the endpoint. On S3 both are set, or one from the environment would win over the url's."""


def client_for(address: BucketAddress, *, request_seconds: float) -> ObjectStore:
    """A client for the address. The driver takes missing options, such as credentials, from the environment."""
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
    # The driver would repeat a write without checking whether the first one took effect.
    retry: RetryConfig = {"max_retries": 0}
    try:
        match address.scheme:
            case "s3":
                # Some servers cannot delete several objects in one request.
                config["disable_bulk_delete"] = True
                return S3Store(address.bucket, config=config, client_options=client, retry_config=retry)
            case "gs":
                return GCSStore(address.bucket, config=config, client_options=client, retry_config=retry)
            case _:
                return AzureStore(address.bucket, config=config, client_options=client, retry_config=retry)
    except (BaseError, ValueError) as wrong:
        said = str(wrong).partition("\n")[0]
        raise SettingsError(f"concurrency.store {address} cannot be used: {said}.") from None
