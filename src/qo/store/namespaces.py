"""How a namespace is written into keys and file names."""

from __future__ import annotations

from urllib.parse import quote


def encoded_namespace(namespace: str) -> str:
    """Letters, digits, `-`, `_` and `.` as they are, everything else percent-encoded: nothing in it can end a name or
    lead elsewhere, and no two namespaces have the same."""
    return quote(namespace, safe="", errors="surrogatepass").replace("~", "%7E")
