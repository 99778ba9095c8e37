"""The store on Redis 7 or Valkey, for more than one machine. Same operation, same file name as in every other store."""

from qo.store.redis.store import RedisStore

__all__ = ["RedisStore"]
