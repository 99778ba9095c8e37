"""The server's state that all event loops share, and what its errors mean for a caller."""

from __future__ import annotations

from qo.errors import StoreAway, StoreUnavailable
from qo.store.redis.server.address import ServerAddress
from qo.store.redis.server.availability import Availability, said
from qo.store.redis.server.connection import ServerRefused
from qo.store.redis.server.nodes import Nodes


class ServerState:
    def __init__(self, url: str) -> None:
        self.nodes = Nodes(url)
        self.availability = Availability()

    def follow(self, moved: ServerRefused, sent_from: ServerAddress) -> None:
        host, _, port = str(moved).rpartition(" ")[2].rpartition(":")
        self.nodes.move(sent_from.beside(host, int(port)))

    def explain(self, refusal: ServerRefused) -> Exception:
        if refusal.code == "OOM":
            return StoreAway(
                f"Redis at {self.nodes.current} is out of memory, nothing was changed; raise its maxmemory "
                "or let jobs end and be forgotten."
            )
        if refusal.code == "NOPERM":
            return StoreUnavailable(
                f"Redis at {self.nodes.current} does not let the user of store.url do what qo does ({refusal}); "
                "its ACL has to allow ~qo:* &qo:*, FCALL, FUNCTION LOAD and the commands that qo's functions use."
            )
        return refusal

    def unavailable(self, cause: Exception | None, *, was_sent: bool) -> StoreAway:
        address, reason = self.nodes.current, said(cause or TimeoutError())
        done = "what was asked may or may not have been done" if was_sent else "nothing was done"
        # A call with little time fails before it is known that the port needs TLS.
        hint = ", and that its port is one for TLS" if address.tls and not was_sent else ""
        return StoreAway(
            f"Redis at {address} cannot be used ({reason}); {done}. "
            f"Check that the server runs and that store.url is right{hint}."
        )

    def closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"The store on Redis at {self.nodes.seed} is closed; connect again.")
