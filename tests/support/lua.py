"""What tests know of Lua scripts."""

#: What the scripts may ask of the store: each is in Redis 6.2.
COMMANDS = {
    "EXISTS", "GET", "HDEL", "HGET", "HGETALL", "HINCRBY", "HMGET", "HSET", "HSETNX", "LINDEX",
    "LPUSH", "LRANGE", "LREM", "LTRIM", "PEXPIRE", "PTTL", "SET", "TIME", "UNLINK", "XADD", "XLEN",
    "XRANGE", "ZADD", "ZCARD", "ZCOUNT", "ZMSCORE", "ZPOPMIN", "ZRANGE", "ZRANGEBYLEX",
    "ZRANGEBYSCORE", "ZRANK", "ZREM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE", "ZSCORE",
}  # fmt: skip


def header(path):
    """The comment that a script begins with."""
    lines = path.read_text(encoding="utf-8").splitlines()
    code = next((i for i, line in enumerate(lines) if not line.startswith("-- ")), len(lines))
    return "\n".join(line for line in lines[:code] if "@include" not in line)
