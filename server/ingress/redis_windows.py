"""The same counts in Redis, shared by servers: in `limits`' own keys and layout, with scripts of our own.

A key has two counts there: the current window's, which expires two minutes after it began, and the previous one's. The
first call after a minute renames one to the other. The library's scripts do not tell in which window they counted, and
asking afterwards is too late: another server may have renamed it. So `take` applies the library's rule in a script that
also answers with the window's name: the time, by Redis' clock, at which its count expires.
"""

from limits.aio.storage import RedisStorage
from limits.aio.storage.redis.redispy import RedispyBridge

from server.ingress.redis_batches import Batches
from server.ingress.windows import WINDOW_S, Level, Taking

_PREFIX = "streamgauge"
_SPAN_MS = WINDOW_S * 1000

# A count without an expiry is none of ours, and would lock its key out for ever.
_ROTATE = """
local previous, current, span = KEYS[1], KEYS[2], tonumber(ARGV[1])
local left = redis.call('PTTL', current)
if left == -1 then
    redis.call('DEL', previous, current)
    left = -2
elseif left >= 0 and left < span then
    redis.call('RENAME', current, previous)
    left = left + span
    redis.call('SET', current, 0, 'PX', left)
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window = now + left
"""

_TAKE = (
    _ROTATE
    + """
local limit, amount = tonumber(ARGV[2]), tonumber(ARGV[3])
local before = tonumber(redis.call('GET', previous)) or 0
local count = tonumber(redis.call('GET', current)) or 0
local fading = math.max(left - span, 0)
local granted = math.floor(before * fading / span) + count + amount <= limit
if granted and amount > 0 then
    if left < 0 then
        redis.call('SET', current, 0, 'PX', 2 * span)
        fading, window = span, now + 2 * span
    end
    count = redis.call('INCRBY', current, amount)
end
return {granted and 1 or 0, before, count, fading, window}
"""
)

# The name of a window varies by the milliseconds that clocks are read with, and from the next one's by a minute.
_SETTLE = (
    _ROTATE
    + """
local taken, surplus = tonumber(ARGV[2]), tonumber(ARGV[3])
if surplus < 0 then
    if left < 0 then
        redis.call('SET', current, 0, 'PX', 2 * span)
    end
    redis.call('INCRBY', current, -surplus)
elseif left >= 0 then
    local age = math.floor((window - taken) / span + 0.5)
    local key = age == 0 and current or age == 1 and previous
    local count = key and tonumber(redis.call('GET', key)) or 0
    if count > 0 then
        redis.call('DECRBY', key, math.min(surplus, count))
    end
end
"""
)


class RedisWindows(RedisStorage):
    """At `url`, redis://host:port/db. Nothing is connected until something is counted.

    `timeout` in seconds bounds each round trip; calls raise RedisError or TimeoutError.
    """

    def __init__(self, url: str, timeout: float) -> None:
        super().__init__(f"async+{url}", implementation="redispy", key_prefix=_PREFIX)
        assert isinstance(self.bridge, RedispyBridge)
        self._batches = Batches(self.bridge.storage, timeout)

    async def take(self, key: str, limit: int, amount: int) -> Taking:
        answer = await self._batches.run(_TAKE, self._keys(key), (_SPAN_MS, limit, amount))
        granted, previous, current, left_ms, window = answer
        return Taking(bool(granted), Level(previous, current, left_ms / 1000), window)

    async def settle(self, key: str, window: int, surplus: int) -> None:
        await self._batches.run(_SETTLE, self._keys(key), (_SPAN_MS, window, surplus))

    async def close(self) -> None:
        await self._batches.close()

    def _keys(self, key: str) -> list[str]:
        both = (self._previous_window_key(key), self._current_window_key(key))
        return [self.bridge.prefixed_key(each) for each in both]
