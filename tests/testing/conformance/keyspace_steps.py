"""Random steps for a server and the simulator's keyspace: commands, scripts, and memory that fills up, drawn from a source of
chance.

Nothing in a trace depends on when exactly it runs: what expires does so at once or in a long time, and no two at about the
same time.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

from support.box import KEYS, SCRIPTS, Box, token

Step = list[bytes]

NAMES = [b"a", b"b", b"c", b"d", b"\x00\xff", *(key.encode() for key in KEYS), b"{data}:fence", b"data"]
WORDS = [b"x", b"y", b"", b"7", b"-3", b"0", b"007", b"1.5", b"two words", b"\xfe\x00"]
FIELDS = [b"x", b"y", b"z", b"v"]
WHOLE = [b"0", b"1", b"-1", b"2", b"-2", b"5", b"10", b"100000000000001", b"-0", b"+1", b"1.0", b"", b"q", b"9" * 19]
SCORES = [b"0", b"1", b"1", b"1", b"2", b"2", b"-1", b"1700000000000001", b"inf", b"-inf", b"+5", b"2.5", b"nan", b"q", b""]
BORDERS = [b"-inf", b"+inf", b"0", b"(0", b"1", b"(1", b"2", b"(2", b"3", b"q"]
FAR_MS, FAR_S = [b"33000000000000", b"34000000000000", b"1", b"0", b"-1", b"q"], [b"33000000000", b"34000000000", b"1", b"0"]
GLOBS = [b"*", b"a", b"?", b"[ab]", b"hf:*", b"[^a]", b"\\a", b"h?:{x}*", b"[a-c]", b"*:state"]
TOKENS = [token(process).encode() for process in "aaabc"] + [token("a", 1).encode(), token("b", lingers=True).encode()]
CHANNELS = [Box.channel(process).encode() for process in "abc"]
HEARD = CHANNELS[:2]

LOADED = hashlib.sha1(b"return ARGV", usedforsecurity=False).hexdigest().encode()
FULL, NOT_FULL = ([b"CONFIG", b"SET", b"maxmemory", value] for value in (b"1", b"0"))

Draw = Callable[[random.Random], Step]


def one(values: list[bytes]) -> Draw:
    return lambda draw: [draw.choice(values)]


def some(*parts: Draw, most: int = 3, least: int = 1) -> Draw:
    """These one after the other, several times."""
    return lambda draw: [word for _ in range(draw.randint(least, most)) for part in parts for word in part(draw)]


def maybe(*parts: Draw) -> Draw:
    """Each of these, or not, in any order."""

    def drawn(draw: random.Random) -> Step:
        chosen = [part for part in parts if draw.random() < 0.4]
        draw.shuffle(chosen)
        return [word for part in chosen for word in part(draw)]

    return drawn


def word(*choices: bytes) -> Draw:
    return one(list(choices))


def option(name: bytes, values: list[bytes]) -> Draw:
    return lambda draw: [name, draw.choice(values)]


key, value, field, whole, score = one(NAMES), one(WORDS), one(FIELDS), one(WHOLE), one(SCORES)


def mostly(name: bytes) -> Draw:
    """A key where one kind of data is at home; and now and then another one, which may hold something else."""
    return lambda draw: [name] if draw.random() < 0.7 else key(draw)


hkey, zkey, lkey, skey = mostly(b"b"), mostly(b"c"), mostly(b"\x00\xff"), mostly(b"d")
place = one([b"0", b"1", b"2", b"-1", b"-2", b"-9", b"9"])


def expiry(draw: random.Random) -> Step:
    """Mostly a time of its own, so that no two expiries are about the same; long, so that nothing expires by itself."""
    return [b"%d" % (draw.randrange(10, 10_000) * 10_000) if draw.random() < 0.8 else draw.choice([b"0", b"-5", b"q"])]


def within(name: bytes) -> Draw:
    return lambda draw: [name, *expiry(draw)]


cond = maybe(word(b"NX", b"XX", b"GT", b"LT"))

COMMANDS: dict[str, list[Draw]] = {
    "PING": [maybe(value)],
    "ECHO": [value],
    "GET": [key],
    "SET": [
        key,
        value,
        maybe(
            word(b"NX", b"xx"),
            word(b"KEEPTTL"),
            within(b"PX"),
            within(b"EX"),
            option(b"PXAT", FAR_MS),
            option(b"EXAT", FAR_S),
            word(b"nonsense"),
        ),
    ],
    "SET GET": [key, value, word(b"GET"), maybe(within(b"PX"), word(b"XX"))],
    "SETNX": [key, value],
    "SETEX": [key, expiry, value],
    "PSETEX": [key, expiry, value],
    "GETSET": [key, value],
    "GETDEL": [key],
    "MGET": [some(key)],
    "MSET": [some(key, value)],
    "APPEND": [key, word(b"x", b"two words", b"")],
    "STRLEN": [key],
    "INCR": [key],
    "DECR": [key],
    "INCRBY": [key, whole],
    "DECRBY": [key, whole],
    "DEL": [some(key)],
    "UNLINK": [some(key)],
    "EXISTS": [some(key)],
    "TYPE": [key],
    "EXPIRE": [key, expiry],
    "PEXPIRE": [key, expiry],
    "EXPIREAT": [key, one(FAR_S)],
    "PEXPIREAT": [key, one(FAR_MS)],
    "PERSIST": [key],
    "TTL": [key],
    "PTTL": [key],
    "KEYS": [one(GLOBS)],
    "SCAN": [word(b"0", b"0", b"q"), option(b"COUNT", [b"1000"]), maybe(option(b"MATCH", GLOBS), option(b"TYPE", [b"zset"]))],
    "DBSIZE": [],
    "RENAME": [key, key],
    "RENAMENX": [key, key],
    "HGET": [hkey, field],
    "HMGET": [hkey, some(field)],
    "HSET": [hkey, some(field, value)],
    "HMSET": [hkey, some(field, value)],
    "HSETNX": [hkey, field, value],
    "HDEL": [hkey, some(field)],
    "HLEN": [hkey],
    "HEXISTS": [hkey, field],
    "HKEYS": [hkey],
    "HVALS": [hkey],
    "HGETALL": [hkey],
    "HINCRBY": [hkey, field, whole],
    "ZADD": [zkey, cond, maybe(word(b"CH")), some(score, field)],
    "ZREM": [zkey, some(field)],
    "ZRANGE": [zkey, place, place, maybe(word(b"WITHSCORES", b"withscores", b"nonsense"))],
    "ZRANGEBYSCORE": [zkey, one(BORDERS), one(BORDERS), maybe(word(b"WITHSCORES"), lambda d: [b"LIMIT", *place(d), *place(d)])],
    "ZCOUNT": [zkey, one(BORDERS), one(BORDERS)],
    "ZREMRANGEBYSCORE": [zkey, one(BORDERS), one(BORDERS)],
    "ZCARD": [zkey],
    "ZSCORE": [zkey, field],
    "ZRANK": [zkey, field],
    "ZPOPMIN": [zkey, maybe(word(b"1", b"2", b"9"))],
    "LPUSH": [lkey, some(value)],
    "RPUSH": [lkey, some(value)],
    "LPOP": [lkey, maybe(place)],
    "RPOP": [lkey, maybe(place)],
    "LLEN": [lkey],
    "LRANGE": [lkey, place, place],
    "SADD": [skey, some(value)],
    "SREM": [skey, some(value)],
    "SCARD": [skey],
    "SISMEMBER": [skey, value],
    "SMEMBERS": [skey],
    "PUBLISH": [one(CHANNELS), value],
    "PUBSUB NUMSUB": [some(one(CHANNELS), least=0)],
    "PUBSUB CHANNELS": [maybe(one(GLOBS))],
    "SELECT": [word(b"0", b"q")],
    "SCRIPT EXISTS": [word(b"0" * 40)],
    "SCRIPT LOAD": [word(b"return 1", b"return (")],
    "EVALSHA": [word(b"0" * 40, b"short", LOADED, LOADED.upper(), LOADED), word(b"0", b"1", b"-1", b"q"), some(value)],
    "NONSENSE": [some(value)],
}
"""Each command with what follows its name."""

SINCE_7 = {"EXPIRE": [key, expiry, cond], "PEXPIRE": [key, expiry, cond], "PEXPIRETIME": [key], "EXPIRETIME": [key]}

SCRIPT_ARGS: dict[str, list[Draw]] = {
    "acquire": [one(TOKENS), word(b"30000", b"5000"), word(b"0", b"1"), maybe(word(b"5", b"33"))],
    "release": [one(TOKENS), word(b"release", b"leave", b"bury")],
    "renew": [one(TOKENS), word(b"30000", b"60000"), word(b"1", b"2", b"3")],
    "exchange_token": [one(TOKENS), one(TOKENS), word(b"30000", b"5000"), word(b"0", b"1800000000000")],
    "refresh": [one(CHANNELS), lambda d: [*one(TOKENS)(d), b"30000"]],
    "check": [word(b"1", b"2", b"5000000000000000"), word(b"60000"), maybe(lambda _: [b"written", b"30000"])],
}

SMALL_SCRIPTS = [
    b"return {1, 2.9, -2.9, 'x', false, true, {ok='fine'}, {err='MY wrong'}, {{}, {3}}, nil, 9}",
    b"return redis.call('SET', KEYS[1], ARGV[1])",
    b"return redis.pcall('HGET', KEYS[1], 'x')",
    b"return redis.call('HGET', KEYS[1], 'x')",
    b"return redis.call('incr', KEYS[1])",
    b"return {redis.call('SET', KEYS[1], 0.5), redis.call('GET', KEYS[1])}",
    b"redis.call('SET', KEYS[1], 1700000000000001); return redis.call('GET', KEYS[1])",
    b"return tostring(redis.call('GET', KEYS[1]))",
    b"return redis.pcall('NONSENSE')",
    b"return redis.pcall('GET')",
    b"return redis.pcall('EVAL', 'return 1', 0)",
    b"return redis.call('GET', {})",
    b"return redis.pcall('GET', nil)",
    b"return redis.call('MGET', KEYS[1], 'a', 'b', 'c', 'x', 'y', 7, 8, 9, 10, 11, 12)",
    b"return redis.error_reply('MY own')",
    b"return redis.status_reply('FINE')",
    b"return {err='MY bare'}",
    b"leak = 1",
    b"return nowhere",
    b"error('stop')",
    b"error({err='MY thrown'})",
    b"return {pcall(redis.call, 'HGET', KEYS[1])}[1]",
    b"local ok = pcall(redis.call, 'HGET', KEYS[1]) return tostring(ok)",
    b"return redis.sha1hex(ARGV[1])",
    b"return #KEYS + 10 * #ARGV",
    b"return 2^53",
    b"return {n = 1}",
    b"return",
    b"return redis.call('TYPE', KEYS[1])",
    b"return redis.call('TYPE', KEYS[1]).ok",
    b"redis.call('HSET', KEYS[1], 'x', 1, 'y', 2, 'z', 3) return redis.call('HLEN', KEYS[1])",
    b"local all = {} for i = 1, 300 do all[i] = i end return all",
    b"return math.floor(-0.5) .. string.format('%.0f', 1.7e15) .. tostring(1.7e15)",
]


def trace(draw: random.Random, steps_at_least: int, *, since_7: bool) -> list[Step]:
    """A trace of random steps: half of them scripts, and some commands with an argument too few or too many."""
    known = COMMANDS | (SINCE_7 if since_7 else {})
    names = list(known)
    steps: list[Step] = [NOT_FULL, [b"FLUSHALL"], [b"SCRIPT", b"FLUSH"], [b"SCRIPT", b"LOAD", b"return ARGV"]]
    while len(steps) < steps_at_least:
        kind = draw.random()
        if kind < 0.02:
            steps.append(FULL)
        elif kind < 0.1:
            steps.append(NOT_FULL)
        elif kind < 0.11:
            steps.append([b"HSET", KEYS[1].encode(), b"v", draw.choice([b"1", b"2"])])
        elif kind < 0.5:
            name = draw.choice(names)
            step = [*name.encode().split(), *(word for part in known[name] for word in part(draw))]
            if name == "SET GET":
                step.pop(1)  # it stands behind, too
            if draw.random() < 0.04 and " " not in name:
                step = step[:-1] if draw.random() < 0.5 and len(step) > 1 else [*step, b"more"]
            steps.append(step if draw.random() < 0.9 else [step[0].lower(), *step[1:]])
        elif kind < 0.85:
            name = draw.choice(list(SCRIPTS))
            keys = ["data", "{data}:fence"] if name == "check" else list(KEYS)
            args = [word for part in SCRIPT_ARGS[name] for word in part(draw)]
            steps.append(evaluation(SCRIPTS[name].body, [each.encode() for each in keys], args))
        else:
            steps.append(evaluation(draw.choice(SMALL_SCRIPTS), key(draw), value(draw)))
    return steps


def evaluation(body: bytes, keys: list[bytes], args: list[bytes]) -> Step:
    return [b"EVAL", body, b"%d" % len(keys), *keys, *args]
