"""What redis-py asks of a Redis server that is used as a cache, asked of the one at HOST PORT, in both versions of RESP.

With a user and a password it logs in, and finds nothing of other users."""

import asyncio
import sys
import threading
import time

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from tap import check, end, refused

# What the listener is set to.
VALUE_BYTES_MAX = 1 << 20
ANY_BYTES = bytes(range(256))


def strings(client):
    check("set", client.set("a", b"1"), True)
    check("get", client.get("a"), b"1")
    check("get of nothing", client.get("none"), None)
    check("set nx over something", client.set("a", b"2", nx=True), None)
    check("set get", client.set("a", b"3", get=True), b"1")
    check("getex", client.getex("a", ex=100), b"3")
    check("ttl", 0 < client.ttl("a") <= 100, True)
    check("getdel", client.getdel("a"), b"3")
    check("append", client.append("b", b"abc"), 3)
    check("getrange", client.getrange("b", 1, -1), b"bc")
    check("setrange", client.setrange("b", 1, b"x"), 3)
    check("strlen", client.strlen("b"), 3)
    check("any bytes as value", client.set("bin", ANY_BYTES * 100), True)
    check("any bytes back", client.get("bin"), ANY_BYTES * 100)
    for name, key in (("low", ANY_BYTES[:128]), ("high", ANY_BYTES[128:])):
        check(f"any bytes as key, {name}", (client.set(key, name), client.get(key)), (True, name.encode()))
    check("an empty value", (client.set("empty", b""), client.get("empty")), (True, b""))


def limits(client):
    largest = b"x" * VALUE_BYTES_MAX
    check("the largest value", client.set("large", largest), True)
    check("the largest value back", client.get("large") == largest, True)
    refused("one byte more", redis.ResponseError, lambda: client.set("large", largest + b"x"), "string exceeds maximum")
    check("nobody reads the value it was to replace", client.get("large"), None)
    check("the largest value again", client.set("large", largest), True)
    refused("a byte appended", redis.ResponseError, lambda: client.append("large", b"x"), "string exceeds maximum")
    check("the connection still works", client.strlen("large"), VALUE_BYTES_MAX)
    client.delete("large")


def many(client):
    check("mset", client.mset({"m1": 1, "m2": 2}), True)
    check("mget", client.mget("m1", "none", "m2"), [b"1", None, b"2"])
    check("msetnx", client.msetnx({"m2": 3, "m3": 3}), False)
    check("exists", client.exists("m1", "m2", "m3"), 2)
    check("delete", client.delete("m1", "m2", "m3"), 2)
    with client.pipeline(transaction=False) as pipeline:
        for key in range(1000):
            pipeline.set(f"p{key}", key)
        for key in range(1000):
            pipeline.get(f"p{key}")
        answers = pipeline.execute()
    check("pipeline", answers, [True] * 1000 + [str(key).encode() for key in range(1000)])
    check("scan", {key for key in client.scan_iter("p*", count=100)}, {f"p{key}".encode() for key in range(1000)})
    check("scan of another type", list(client.scan_iter("p*", count=1000, _type="list")), [])
    check("keys", len(client.keys("p?")), 10)
    keys = [f"many:{key}" for key in range(10_000)]
    check("mset of 10,000", client.mset({key: key for key in keys}), True)
    check("mget of 10,000", client.mget(keys), [key.encode() for key in keys])
    check("a scan through all keys", set(map(str.encode, keys)) <= set(client.scan_iter(count=1000)), True)
    check("delete of 10,000", client.unlink(*keys), 10_000)
    half = [client.get, lambda key: client.delete(key)]
    check("get and delete of nothing", [ask("many:1") for ask in half], [None, 0])


def errors_in_a_pipeline(client):
    client.set("word", "x")
    with client.pipeline(transaction=False) as pipeline:
        pipeline.incr("word").get("word").lpush("word", 1).ping()
        answers = pipeline.execute(raise_on_error=False)
    check("errors in a pipeline", [isinstance(one, redis.ResponseError) for one in answers], [True, False, True, False])
    check("what is between them", answers[1::2], [b"x", True])
    refused("a script", redis.ResponseError, lambda: client.eval("return 1", 0), "scripts are refused")
    check("the client works after it", client.get("word"), b"x")


def transactions(client):
    with client.pipeline() as pipeline:
        answers = pipeline.set("tx", 1).incr("tx").get("tx").mget("tx", "none").execute()
    check("a default pipeline", answers, [True, 2, b"2", [b"2", None]])
    with client.pipeline() as pipeline:
        pipeline.set("word", "x").incr("word").get("word")
        answers = pipeline.execute(raise_on_error=False)
    check("an error in a transaction", [isinstance(answers[1], redis.ResponseError), answers[2]], [True, b"x"])
    with client.pipeline() as pipeline:
        pipeline.set("tx", 9).execute_command("NOSUCH")
        refused("a transaction with a wrong command", redis.ResponseError, pipeline.execute, "unknown command")
    check("nothing of it was executed", client.get("tx"), b"2")
    with client.pipeline() as pipeline:
        pipeline.watch("tx")
        client.set("tx", 3)
        pipeline.multi()
        pipeline.set("tx", 4)
        refused("a transaction whose key has changed", redis.WatchError, pipeline.execute)
    check("a transaction function", client.transaction(lambda pipe: (pipe.multi(), pipe.incr("tx")), "tx"), [4])
    names = {f"tx:{number}": number for number in range(500)}
    with client.pipeline() as pipeline:
        for name, number in names.items():
            pipeline.set(name, number, ex=100)
        check("500 commands", all(pipeline.execute()), True)
    client.delete(*names)


def numbers(client):
    check("incr", client.incr("n", 5), 5)
    check("decr", client.decr("n", 2), 3)
    check("incrbyfloat", client.incrbyfloat("n", 0.5), 3.5)
    refused("incr of a fraction", redis.ResponseError, lambda: client.incr("n"), "not an integer")
    client.set("n", (1 << 63) - 1)
    refused("incr over 64 bits", redis.ResponseError, lambda: client.incr("n"), "overflow")


def lifetimes(client):
    client.set("t", b"1", px=20)
    deadline = time.monotonic() + 20
    while client.exists("t") and time.monotonic() < deadline:
        pass
    check("a key with 20 ms to live ends", client.exists("t"), 0)
    client.set("t", b"1")
    check("expire", client.expire("t", 100), True)
    check("expire nx", client.expire("t", 100, nx=True), False)
    at = int(time.time()) + 1000
    check("expireat", client.expireat("t", at), True)
    check("expiretime", client.expiretime("t"), at)
    check("persist", client.persist("t"), True)
    check("ttl of what stays", client.ttl("t"), -1)
    check("ttl of nothing", client.ttl("none"), -2)
    client.set("t", "1", ex=100)
    check("a set with keepttl", (client.set("t", "2", keepttl=True), client.ttl("t") > 0), (True, True))
    check("a set without", (client.set("t", "3"), client.ttl("t")), (True, -1))
    check("rename", (client.rename("t", "t2"), client.get("t"), client.get("t2")), (True, None, b"3"))
    check("copy", (client.copy("t2", "t3"), client.get("t3")), (True, b"3"))


def about(client):
    check("ping", client.ping(), True)
    check("echo", client.echo(ANY_BYTES), ANY_BYTES)
    check("client name", (client.client_setname("me"), client.client_getname() in (b"me", "me")), (True, True))
    check("client id", client.client_id() > 0, True)
    check("client list", any(one["name"] == "me" and one["lib-name"] for one in client.client_list()), True)
    check("client info", client.client_info()["name"], "me")
    check("info", client.info("server")["redis_mode"], "standalone")
    check("info of everything", {"used_memory", "role", "keyspace_hits"} <= set(client.info("everything")), True)
    config = {word(name): word(value) for name, value in client.config_get("maxmemory*").items()}
    check("config get", config["maxmemory-policy"], "allkeys-lru")
    check("type", word(client.type("n")), "string")
    check("object encoding", word(client.object("encoding", "n")), "int")
    check("object refcount", client.object("refcount", "n"), 1)
    check("object idletime", 0 <= client.object("idletime", "n") < 1000, True)
    refused("lists", redis.ResponseError, lambda: client.lpush("l", 1), "unknown command")
    check("command count", client.command_count() > 50, True)
    check("one command", client.command()["get"]["arity"], 2)
    check("time", abs(client.time()[0] - time.time()) < 100, True)
    check("dbsize", client.dbsize() > 0, True)
    check("flushdb", (client.flushdb(), client.dbsize()), (True, 0))


def word(value):
    return value.decode() if isinstance(value, bytes) else value


def pool(address, protocol):
    """More threads than connections, and connections that were closed under the pool's hands."""
    connections = redis.BlockingConnectionPool(**address, protocol=protocol, max_connections=4, timeout=120)
    client = redis.Redis(connection_pool=connections)
    wrong = []

    def ask(thread):
        for number in range(100):
            client.set(f"pool:{thread}:{number}", number)
            if client.get(f"pool:{thread}:{number}") != str(number).encode():
                wrong.append((thread, number))

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    check("sixteen threads over four connections", wrong, [])
    connections.disconnect()
    check("a pool connects again", client.get("pool:1:1"), b"1")
    client.close()


def reconnect(address, protocol):
    client = redis.Redis(**address, protocol=protocol, retry=Retry(NoBackoff(), 3), single_connection_client=True)
    client.set("again", "1")
    # The server closes, as it does to those who are idle for too long.
    client.connection.send_command("QUIT")
    check("quit", client.connection.read_response(), b"OK")
    check("a client connects again", client.get("again"), b"1")
    client.close()


async def asynchronous(address, protocol):
    connections = redis.asyncio.BlockingConnectionPool(
        **address, protocol=protocol, max_connections=10, timeout=120, decode_responses=True
    )
    client = redis.asyncio.Redis(connection_pool=connections)
    await client.set("async", "ü")
    answers = await asyncio.gather(*(client.get("async") for _ in range(100)))
    check("a hundred tasks over ten connections", set(answers), {"ü"})
    check("decoded answers", await client.mget("async", "none"), ["ü", None])
    await client.aclose()
    await connections.disconnect()


def main(host, port, *login):
    # Longer than anything takes here. Who gives up sends a command twice, and the second answer is another.
    address = {"host": host, "port": port, "socket_timeout": 120}
    address |= dict(zip(("username", "password"), login, strict=False))
    for protocol in (2, 3):
        client = redis.Redis(**address, protocol=protocol)
        client.flushall()
        for part in (strings, limits, many, errors_in_a_pipeline, transactions, numbers, lifetimes, about):
            part(client)
        client.close()
        pool(address, protocol)
        reconnect(address, protocol)
        asyncio.run(asynchronous(address, protocol))
    end()


main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
