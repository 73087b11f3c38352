"""What pymemcache asks of a memcached server, asked of the one at HOST PORT.

With a user and a password each of its connections logs in first."""

import sys

from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.client.retrying import RetryingClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError
from pymemcache.serde import pickle_serde

from tap import check, end, refused

# What the listener is set to.
VALUE_BYTES_MAX = 1 << 20
# Bytes above ASCII; the client itself lets no others through that are not printable.
KEY = bytes(range(0xA1, 0x100))


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
    check("any bytes as value", client.set("bin", bytes(range(256)) * 100, noreply=False), True)
    check("any bytes back", client.get("bin"), bytes(range(256)) * 100)
    check("an empty value", (client.set("empty", b"", noreply=False), client.get("empty")), (True, b""))
    check("a key of 250 bytes", (client.set("k" * 250, b"x", noreply=False), client.get("k" * 250)), (True, b"x"))
    check("any byte a key may have", client.set(KEY, b"x", noreply=False), True)
    check("any byte a key may have, back", client.get(KEY), b"x")
    check("delete", (client.delete("b", noreply=False), client.delete("b", noreply=False)), (True, False))


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
    largest = b"x" * VALUE_BYTES_MAX
    check("the largest value", client.set("l", largest, noreply=False), True)
    check("the largest value back", client.get("l") == largest, True)
    refused("one byte more", MemcacheServerError, lambda: client.set("l", largest + b"x", noreply=False), "too large")
    check("nobody reads the value it was to replace", client.get("l"), None)
    check("the connection still works", client.get("a"), b"1")


def server(client):
    check("version", client.version().startswith(b"1.6"), True)
    stats = client.stats()
    check("stats", stats[b"curr_items"] > 0 and stats[b"cmd_get"] > 0, True)
    check("stats settings", b"item_size_max" in client.stats("settings"), True)
    check("flush_all", client.flush_all(noreply=False), True)
    check("flushed", client.get("a"), None)
    client.quit()


def objects(address):
    client = Client(address, serde=pickle_serde, timeout=60)
    value = {"a": [1, 2.5, None, "ü"]}
    check("an object", (client.set("object", value, noreply=False), client.get("object")), (True, value))
    client.close()


def connections(address):
    client = Client(address, timeout=60)
    client.set("again", b"x", noreply=False)
    # The server closes, as it does to those who are idle for too long.
    client.sock.sendall(b"quit\r\n")
    check("the server closes", client.sock.recv(1), b"")
    client.close()
    check("a client connects again", client.get("again"), b"x")
    retrying = RetryingClient(Client(address, timeout=60), attempts=2)
    check("a client that retries", retrying.set("r", b"x", noreply=False), True)
    pooled = PooledClient(address, max_pool_size=4, timeout=60)
    check("a pool", (pooled.set("p", b"x", noreply=False), pooled.get_many(["p", "r"])), (True, {"p": b"x", "r": b"x"}))
    hashing = HashClient([address], timeout=60, use_pooling=True)
    check("a ring of one", (hashing.set_many({"h1": b"1", "h2": b"2"}), hashing.get_many(["h1", "h2"])),
          ([], {"h1": b"1", "h2": b"2"}))


def log_in(user, password):
    """Has every new connection of any client send this login before anything else."""
    connect = Client._connect

    def connected(client):
        connect(client)
        text = f"{user} {password}".encode()
        client.sock.sendall(b"set login 0 0 %d\r\n%s\r\n" % (len(text), text))
        answer = b""
        while not answer.endswith(b"\r\n"):
            answer += client.sock.recv(64)
        if answer != b"STORED\r\n":
            raise MemcacheClientError(answer)

    Client._connect = connected


def main():
    address = (sys.argv[1], int(sys.argv[2]))
    if sys.argv[3:]:
        log_in(*sys.argv[3:])
    # Longer than anything takes here: a program that fails does not hang.
    client = Client(address, connect_timeout=60, timeout=60, no_delay=True)
    client.flush_all(noreply=False)
    for part in (storage, many, cas, numbers, times, silence, meta, limits, server):
        part(client)
    objects(address)
    connections(address)
    end()


main()
