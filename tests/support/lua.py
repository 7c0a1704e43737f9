"""Lists the Redis commands that Lua scripts may call, and reads the header comments of scripts."""

#: Redis commands that scripts may call. All are in Redis 6.2.
COMMANDS = {
    "EXISTS", "GET", "HDEL", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HLEN", "HMGET", "HSET",
    "HSETNX", "LINDEX", "LPUSH", "LRANGE", "LREM", "LTRIM", "PEXPIRE", "PTTL", "SET", "TIME",
    "UNLINK", "XADD", "XLEN", "XRANGE", "ZADD", "ZCARD", "ZCOUNT", "ZMSCORE", "ZPOPMIN", "ZRANGE",
    "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZRANK", "ZREM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE",
    "ZSCORE",
}  # fmt: skip


def read_header(path):
    """Return the comment at the beginning of a script."""
    lines = path.read_text(encoding="utf-8").splitlines()
    code = next((i for i, line in enumerate(lines) if not line.startswith("-- ")), len(lines))
    return "\n".join(line for line in lines[:code] if "@include" not in line)
