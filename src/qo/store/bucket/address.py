"""The url of a bucket, and the options that it may have."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from qo.errors import SettingsError

URLS = "s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
SCHEMES = ("s3", "gs", "az")
OPTIONS = {
    "s3": ("endpoint", "region", "access_key_id", "secret_access_key", "session_token"),
    "gs": ("endpoint", "service_account"),
    "az": ("endpoint", "account_name", "account_key"),
}
ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}

_PART = re.compile(r"[A-Za-z0-9_=:-][A-Za-z0-9._=:-]*")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket and a prefix in it. Its text leaves out the options, because they may be credentials."""

    scheme: str
    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    options: dict[str, str] = field(default_factory=dict, repr=False)
    """The options of the url, without the endpoint."""

    def __str__(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return "/".join(part for part in (f"{self.scheme}://{self.bucket}", self.prefix) if part) + at

    @property
    def plain_http(self) -> bool:
        """True only when the endpoint itself begins with http://, because the connection can then be read by others."""
        return self.endpoint is not None and self.endpoint.startswith("http://")


def parse_bucket_url(url: str) -> BucketAddress:
    """Read a url and the provider's environment variables. The text of a `SettingsError` contains no option's value."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise SettingsError(f"concurrency.store cannot be read; use {URLS}.") from None
    if parts.scheme not in SCHEMES or parts.fragment or not _BUCKET.fullmatch(parts.netloc):
        raise SettingsError(f"concurrency.store names no bucket; use {URLS}.")
    if unknown := options.keys() - set(OPTIONS[parts.scheme]):
        allowed = ", ".join(OPTIONS[parts.scheme])
        raise SettingsError(f"concurrency.store has the unknown option {min(unknown)!r}; allowed here: {allowed}.")
    named = (os.environ.get(variable) for variable in ENDPOINT_VARIABLES[parts.scheme])
    endpoint = options.pop("endpoint", None) or next(filter(None, named), None)
    if endpoint is not None and not re.match(r"https?://[^@?#]+$", endpoint):
        raise SettingsError("concurrency.store has an endpoint that is no address; use https://host or http://host.")
    return BucketAddress(parts.scheme, parts.netloc, _prefix(parts.path), endpoint, options)


def _prefix(path: str) -> str:
    """The prefix, checked and not encoded: access rules contain it letter by letter."""
    prefix = unquote(path).strip("/")
    for part in prefix.split("/") if prefix else ():
        if not _PART.fullmatch(part):
            raise SettingsError(
                f"concurrency.store has the prefix {prefix!r}; use parts of letters, digits and . _ - = : "
                "that do not begin with a dot, with one / between two."
            )
    return prefix
