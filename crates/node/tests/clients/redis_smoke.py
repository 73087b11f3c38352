"""What redis-py asks of a Redis server that is used as a cache, asked of the one at HOST PORT, in both versions of RESP.

Exits with status 0 and prints "ok" when every answer is right.
"""

import sys
import time

import redis
from checks import check, refused


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
    check("binary value", client.set("bin", bytes(range(256)) * 100), True)
    check("binary value back", client.get("bin"), bytes(range(256)) * 100)


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
    check("keys", len(client.keys("p?")), 10)


def numbers(client):
    check("incr", client.incr("n", 5), 5)
    check("decr", client.decr("n", 2), 3)
    check("incrbyfloat", client.incrbyfloat("n", 0.5), 3.5)
    refused("incr of a fraction", redis.ResponseError, lambda: client.incr("n"), "not an integer")


def lifetimes(client):
    client.set("t", b"1", px=20)
    deadline = time.monotonic() + 20
    while client.exists("t"):
        if time.monotonic() > deadline:
            sys.exit("a key with 20 ms to live is there after 20 s")
    client.set("t", b"1")
    check("expire", client.expire("t", 100), True)
    check("expire nx", client.expire("t", 100, nx=True), False)
    at = int(time.time()) + 1000
    check("expireat", client.expireat("t", at), True)
    check("expiretime", client.expiretime("t"), at)
    check("persist", client.persist("t"), True)
    check("ttl of what stays", client.ttl("t"), -1)


def about(client):
    check("ping", client.ping(), True)
    check("client name", client.client_setname("me"), True)
    check("info", client.info("server")["redis_mode"], "standalone")
    check("config", client.config_get("appendonly"), {"appendonly": "no"})
    check("type", client.type("n"), b"string")
    refused("lists", redis.ResponseError, lambda: client.lpush("l", 1), "unknown command")
    check("commands", client.command_count() > 50, True)
    check("one command", client.command()["get"]["arity"], 2)
    check("flushdb", client.flushdb(), True)
    check("dbsize", client.dbsize(), 0)


def main(host, port):
    for protocol in (2, 3):
        client = redis.Redis(host, port, protocol=protocol)
        for part in (strings, many, numbers, lifetimes, about):
            part(client)
        client.close()
    print("ok")


main(sys.argv[1], int(sys.argv[2]))
