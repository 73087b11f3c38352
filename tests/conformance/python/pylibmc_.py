"""What pylibmc, and through it libmemcached, asks of a memcached server, asked of the one at HOST PORT, with `binary` by the
binary protocol.
"""

import sys
import threading

import pylibmc

from tap import check, end, refused

# What the listener is set to.
VALUE_BYTES_MAX = 1 << 20


def found(call):
    """The result of a call, or False if it raises that there is no such item, as it does by the binary protocol."""
    try:
        return call()
    except pylibmc.NotFound:
        return False


def storage(client):
    check("set", client.set("a", b"1"), True)
    check("get", client.get("a"), b"1")
    check("get of nothing", client.get("none"), None)
    check("add over something", client.add("a", b"2"), False)
    check("add", client.add("b", b"2"), True)
    check("replace", (client.replace("b", b"3"), found(lambda: client.replace("none", b"3"))), (True, False))
    check("append", client.append("b", b"+"), True)
    check("prepend", client.prepend("b", b"-"), True)
    check("get of both", client.get("b"), b"-3+")
    check("any bytes as value", client.set("bin", bytes(range(256)) * 100), True)
    check("any bytes back", client.get("bin"), bytes(range(256)) * 100)
    check("an empty value", (client.set("empty", b""), client.get("empty")), (True, b""))
    check("an object", (client.set("object", {"a": [1, None]}), client.get("object")), (True, {"a": [1, None]}))
    check("delete", (client.delete("b"), client.delete("b")), (True, False))
    check("touch", (client.touch("a", 100), client.touch("none", 100)), (True, False))


def many(client):
    values = {f"many-{number}": str(number) for number in range(2000)}
    check("set_multi", client.set_multi(values), [])
    check("get_multi", client.get_multi([*values, "none"]), values)
    check("get_multi of a prefix", client.get_multi(["1", "2"], key_prefix="many-"), {"1": "1", "2": "2"})
    check("delete_multi", client.delete_multi(list(values)), True)
    check("get_multi of nothing", client.get_multi(list(values)), {})


def cas(client):
    client.set("c", "1")
    value, unique = client.gets("c")
    check("gets", value, "1")
    check("cas", client.cas("c", "2", unique), True)
    check("cas of what was changed", client.cas("c", "3", unique), False)
    refused("cas of nothing", pylibmc.NotFound, lambda: client.cas("none", "3", unique))


def numbers(client):
    client.set("n", 9)
    check("incr", client.incr("n", 2), 11)
    check("decr", client.decr("n", 20), 0)
    check("a number is a number", client.get("n"), 0)
    refused("incr of nothing", pylibmc.NotFound, lambda: client.incr("none"))
    # By the binary protocol, libmemcached takes this error for a failure of the server and avoids it for some seconds.
    if not client.binary:
        client.set("n", "x")
        refused("incr of text", pylibmc.Error, lambda: client.incr("n"))


def limits(client):
    refused("a key that is too long", ValueError, lambda: client.get("k" * 251))
    largest = b"x" * VALUE_BYTES_MAX
    check("the largest value", client.set("l", largest), True)
    check("the largest value back", client.get("l") == largest, True)
    refused("one byte more", pylibmc.TooBig, lambda: client.set("l", largest + b"x"))
    check("the connection still works", client.get("a"), b"1")
    check("a compressed value", (client.set("z", largest * 4, min_compress_len=1), len(client.get("z"))), (True, 4 << 20))


def pool(client):
    wrong = []
    shared = pylibmc.ThreadMappedPool(client)

    def ask(thread):
        with shared.reserve() as own:
            for number in range(100):
                own.set(f"pool-{thread}-{number}", number)
                if own.get(f"pool-{thread}-{number}") != number:
                    wrong.append((thread, number))
        shared.relinquish()

    threads = [threading.Thread(target=ask, args=(thread,)) for thread in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    check("eight threads", wrong, [])


def server(client):
    [(_, stats)] = client.get_stats()
    check("stats", int(stats["curr_items"]) > 0 and int(stats["cmd_get"]) > 0, True)
    check("flush_all", (client.flush_all(), client.get("a")), (True, None))
    client.disconnect_all()
    check("a client connects again", (client.set("a", b"1"), client.get("a")), (True, b"1"))


def main():
    address = f"{sys.argv[1]}:{sys.argv[2]}"
    binary = "binary" in sys.argv[3:]
    for behaviors in ({"cas": True}, {"cas": True, "tcp_nodelay": True, "no_block": True, "buffer_requests": False, "ketama": True}):
        client = pylibmc.Client([address], binary=binary, behaviors=behaviors)
        client.flush_all()
        # By the binary protocol, this libmemcached waits for ever after a refused value, whichever the server.
        for part in (storage, many, cas, numbers) if binary else (storage, many, cas, numbers, limits, pool, server):
            part(client)
    end()


main()
