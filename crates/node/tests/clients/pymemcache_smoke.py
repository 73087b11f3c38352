"""Everything pymemcache can ask of a memcached server, asked of the one at HOST PORT.

Exits with status 0 and prints "ok" when every answer is right.
"""

import sys

from checks import check, refused
from pymemcache.client.base import Client
from pymemcache.client.retrying import RetryingClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError


def storage(client):
    check("set", client.set("a", b"1", noreply=False), True)
    check("get", client.get("a"), b"1")
    check("get of nothing", client.get("none"), None)
    check("add over something", client.add("a", b"2", noreply=False), False)
    check("add", client.add("b", b"2", noreply=False), True)
    check("replace", client.replace("b", b"3", noreply=False), True)
    check("replace of nothing", client.replace("none", b"3", noreply=False), False)
    check("append", client.append("b", b"+", noreply=False), True)
    check("prepend", client.prepend("b", b"-", noreply=False), True)
    check("get of both", client.get("b"), b"-3+")
    check("set with flags", client.set("f", b"x", flags=7, noreply=False), True)
    check("raw get", client.raw_command("get f", "END\r\n"), b"VALUE f 7 1\r\nx\r\n")
    check("binary value", client.set("bin", bytes(range(256)) * 100, noreply=False), True)
    check("binary value back", client.get("bin"), bytes(range(256)) * 100)


def many(client):
    values = {f"many-{number}": str(number).encode() for number in range(2000)}
    check("set_many", client.set_many(values, noreply=False), [])
    check("get_many", client.get_many([*values, "none"]), values)
    uniques = client.gets_many(list(values)[:3])
    check("gets_many", {key: value for key, (value, _) in uniques.items()}, dict(list(values.items())[:3]))
    check("delete_many", client.delete_many(list(values), noreply=False), True)
    check("get_many of nothing", client.get_many(list(values)), {})


def cas(client):
    client.set("c", b"1", noreply=False)
    value, unique = client.gets("c")
    check("gets", value, b"1")
    check("cas", client.cas("c", b"2", unique, noreply=False), True)
    check("cas of what was changed", client.cas("c", b"3", unique, noreply=False), False)
    check("cas of nothing", client.cas("none", b"3", unique, noreply=False), None)


def numbers(client):
    client.set("n", b"9", noreply=False)
    check("incr", client.incr("n", 2), 11)
    check("decr", client.decr("n", 20), 0)
    check("incr of nothing", client.incr("none", 1), None)
    client.set("n", b"x", noreply=False)
    refused("incr of text", MemcacheClientError, lambda: client.incr("n", 1))


def times(client):
    client.set("t", b"x", expire=-1, noreply=False)
    check("expired at once", client.get("t"), None)
    client.set("t", b"x", expire=100, noreply=False)
    check("not expired", client.get("t"), b"x")
    check("touch", client.touch("t", 200, noreply=False), True)
    check("touch of nothing", client.touch("none", 200, noreply=False), False)
    check("gat", client.raw_command("gat 100 t", "END\r\n"), b"VALUE t 0 1\r\nx\r\n")
    check("touched away", client.touch("t", -1, noreply=False), True)
    check("gone", client.get("t"), None)


def silence(client):
    for number in range(100):
        client.set(f"q-{number}", b"x", noreply=True)
    client.delete("q-0", noreply=True)
    client.incr("none", 1, noreply=True)
    check("after silent commands", len(client.get_many([f"q-{number}" for number in range(100)])), 99)


def meta(client):
    check("ms", client.raw_command("ms m 2 T100 F7\r\nhi"), b"HD")
    check("mg", client.raw_command("mg m v f", "\r\nhi\r\n"), b"VA 2 f7")
    check("no-op", client.raw_command("mn"), b"MN")


def limits(client):
    refused("a key that is too long", MemcacheIllegalInputError, lambda: client.get("k" * 251))
    too_large = b"x" * (2 << 20)
    refused("a value that is too large", MemcacheServerError, lambda: client.set("l", too_large, noreply=False))
    check("the connection still works", client.get("a"), b"1")


def server(client):
    check("version", client.version().startswith(b"1.6"), True)
    stats = client.stats()
    check("stats", stats[b"curr_items"] > 0 and stats[b"cmd_get"] > 0, True)
    check("stats settings", b"item_size_max" in client.stats("settings"), True)
    check("flush_all", client.flush_all(noreply=False), True)
    check("flushed", client.get("a"), None)
    client.quit()


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    client = Client((host, port), connect_timeout=10, timeout=10, no_delay=True)
    client.flush_all(noreply=False)
    for part in (storage, many, cas, numbers, times, silence, meta, limits, server):
        part(client)
    retrying = RetryingClient(Client((host, port), timeout=10), attempts=2)
    check("a client that retries", retrying.set("r", b"x", noreply=False), True)
    print("ok")


main()
