"""Which failures an acknowledged job survives on this server, and which servers are refused."""

from __future__ import annotations

from collections.abc import Mapping

from qo.errors import StoreUnavailable
from qo.store.redis.server.client import Client
from qo.store.redis.server.connection import ServerRefused

OLDEST_VERSION = 7
SETTINGS = ("appendfsync", "min-replicas-to-write", "no-appendfsync-on-rewrite", "save")


async def describe(client: Client, *, accept_eviction: bool) -> str:
    """One line for the log. Raises `StoreUnavailable` for a server that is too old, is a replica, or may evict jobs.

    With `accept_eviction` a server that may evict jobs is used nevertheless.
    """
    await _find_namespace(client)
    try:
        info = parse_info(await client.command("INFO"))
    except ServerRefused as refusal:
        return f"Redis at {client.address}: what an acknowledged job survives there is not told ({refusal})"
    try:
        reply = await client.command("CONFIG", "GET", *SETTINGS)
    except ServerRefused:
        settings = None  # managed servers often forbid CONFIG
    else:
        texts = [text.decode() for text in reply]
        settings = dict(zip(texts[::2], texts[1::2], strict=True))
    return judge(client.address, info, settings, accept_eviction=accept_eviction)


async def _find_namespace(client: Client) -> None:
    """Send a command for the namespace, which in a cluster leads to the node that has it. Its settings count."""
    try:
        await client.command("EXISTS", client.prefix)
    except ServerRefused as refusal:
        raise StoreUnavailable(
            f"Redis at {client.address} does not let the user of store.url use the keys {client.prefix}* ({refusal}); "
            "allow them in its ACL."
        ) from None


def parse_info(reply: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in pairs if colon}


def judge(address: str, info: Mapping[str, str], settings: Mapping[str, str] | None, *, accept_eviction: bool) -> str:
    """Describe the server, or raise `StoreUnavailable`. `settings` is None when the server does not return them."""
    kind = "Valkey" if info.get("server_name") == "valkey" else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "0")
    server = f"{kind} {version} at {address}"
    if int(version.partition(".")[0]) < OLDEST_VERSION:
        raise StoreUnavailable(f"{server} is too old; qo needs Redis {OLDEST_VERSION} or newer, or Valkey.")
    if info.get("role") == "slave":
        raise StoreUnavailable(f"{server} is a replica, which takes no writes; name its primary in store.url.")
    remarks = [_survives(info, settings)]
    if int(info.get("connected_slaves", "0")):
        remarks.append("a failover may cost what had not reached the replica")
        if settings and settings.get("min-replicas-to-write") == "0":
            remarks.append("a primary that was replaced goes on taking what is lost (set min-replicas-to-write to 1)")
    policy, memory = info.get("maxmemory_policy", "noeviction"), int(info.get("maxmemory", "0"))
    if memory and policy != "noeviction":
        if not accept_eviction:
            raise StoreUnavailable(
                f"{server} throws keys away when its memory is full (maxmemory-policy {policy}, maxmemory {memory}), "
                "and jobs with them; set its maxmemory-policy to noeviction, or accept that by "
                "store.accept_eviction = true in .qo.toml (or QO_STORE__ACCEPT_EVICTION=true)."
            )
        remarks.append(f"when its {memory} bytes are full it throws jobs away ({policy}), which was accepted")
    return f"{server}: {'; '.join(remarks)}"


def _survives(info: Mapping[str, str], settings: Mapping[str, str] | None) -> str:
    if info.get("aof_enabled") == "1":
        if info.get("aof_last_write_status", "ok") != "ok":
            return "append-only file, but its last write failed: an acknowledged job may not survive anything"
        match settings and settings.get("appendfsync"):
            case "always" if settings and settings.get("no-appendfsync-on-rewrite") == "yes":
                return (
                    "append-only file, synced before every answer but not while it is rewritten: an acknowledged job "
                    "survives a crash of the server process; a power loss then may cost the last half minute"
                )
            case "always":
                return (
                    "append-only file, synced before every answer: "
                    "an acknowledged job survives a crash of the server process and a power loss"
                )
            case "everysec":
                return (
                    # During a sync the server may delay writes that it has acknowledged.
                    "append-only file, synced every second: a crash of the server process may cost what was "
                    "acknowledged during the last sync, a power loss the last second or two"
                )
            case "no":
                return (
                    "append-only file, synced when the system does: an acknowledged job survives a crash of the server "
                    "process; a power loss may cost the last half minute"
                )
        return (
            "append-only file, how often it is synced is not told: a crash of the server process may cost what was "
            "acknowledged during the last sync; what a power loss costs is not known"
        )
    if settings is None:
        return (
            "no append-only file, whether there are snapshots is not told: a restart of the server may lose every job"
        )
    if settings.get("save"):
        return (
            f"snapshots only (save {settings['save']}): "
            "a crash of the server loses every job acknowledged since the last one"
        )
    return "no persistence: a restart of the server loses every job"
