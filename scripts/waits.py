#!/usr/bin/env python3
"""Measures how long clients wait for the commands of another client.

    scripts/waits.py target/release/sherwood [--clients 60] [--seconds 1] [--threads 4] [CASE …]

A node of four threads serves --clients clients, each of which asks for a key of its own again and
again, one command at a time, and one more client, which sends the dearest form of a command: alone,
one after the other; in pipelines; and in transactions. For each it prints the longest wait of any
of the other clients, the 99.9th percentile, and what the dear commands were answered; `none` is
without the dear client, and says what the machine makes clients wait. Waits are measured by a
process of their own, so a machine needs two cores and no other load.

The cases `lcs-400`, `lcs-1000` and `bitcount-1000` are transactions of so many commands. Exit
status 1 if a wait exceeds --bound-ms beyond that of `none`, which is measured before and after.
Takes two minutes and needs only Python.
"""

import argparse
import json
import multiprocessing
import os
import re
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time

MIB = 1 << 20
BIG = MIB - 4096
PATTERN = "*[" + "*b" * 500 + "]"


def redis(*arguments):
    """Encodes a Redis request."""
    parts = [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def keys(count, head=("DEL",), pairs=False):
    arguments = [word for key in range(count) for word in ([f"m{key}", "v"] if pairs else [f"m{key}"])]
    return redis(*head, *arguments)


# Redis commands that can be sent again and again, in the order of one round.
REDIS = {
    "lcs": [redis("LCS", "left", "right")],
    "lcs-idx": [redis("LCS", "left", "right", "IDX")],
    "bitcount": [redis("BITCOUNT", "big")],
    "append": [redis("APPEND", "grown", "x")],
    "setrange": [redis("SETRANGE", "far", BIG, "x")],
    "setbit": [redis("SETBIT", "far", 8 * BIG, 1)],
    "getrange": [redis("GETRANGE", "big", 0, -1)],
    "get": [redis("GET", "big")],
    "getset": [redis("GETEX", "big")],
    "copy": [redis("COPY", "big", "other", "REPLACE")],
    "rename": [redis("RENAME", "moved", "moved2"), redis("RENAME", "moved2", "moved")],
    "incrbyfloat": [redis("INCRBYFLOAT", "number", 1)],
    "del": [keys(100_000)],
    "exists": [keys(100_000, ["EXISTS"])],
    "touch": [keys(100_000, ["TOUCH"])],
    "mget": [keys(100_000, ["MGET"])],
    "mset": [keys(50_000, ["MSET"], pairs=True)],
    "msetnx": [keys(13_000, ["MSETNX"], pairs=True)],
    "keys": [redis("KEYS", PATTERN)],
    "scan": [redis("SCAN", 0, "MATCH", PATTERN, "COUNT", 100_000)],
    "dbsize": [redis("DBSIZE")],
    "config-get": [redis("CONFIG", "GET", "*a" * 2000)],
    "command-docs": [redis("COMMAND", "DOCS", *["client"] * 1000)],
    "command-info": [redis("COMMAND", "INFO", *["client"] * 1000)],
    "client-list": [redis("CLIENT", "LIST")],
    "client-list-id": [redis("CLIENT", "LIST", "ID", *range(60_000))],
    "info": [redis("INFO")],
    "watch": [redis("WATCH", *(f"m{key}" for key in range(1000))), redis("UNWATCH")],
    "flushall": [redis("FLUSHALL")],
}
MEMCACHED = {
    "append": b"append grown 0 0 1\r\nx\r\n",
    "prepend": b"prepend grown 0 0 1\r\nx\r\n",
    "ms-append": b"ms grown 1 MA\r\nx\r\n",
    "get": b"get big\r\n",
    "get-missing": b"get " + b" ".join([b"k"] * 8000) + b"\r\n",
    "gat-missing": b"gat 0 " + b" ".join([b"k"] * 8000) + b"\r\n",
    "incr": b"incr padded 1\r\n",
    "stats": b"stats\r\n",
    "stats-reset": b"stats reset\r\n",
    "flush_all": b"flush_all\r\n",
}
NOOP = struct.pack(">BBHBBHIIQ", 0x80, 0x0A, 0, 0, 0, 0, 0, 0, 0)
# A `noop` whose opaque tells its answer from those of others.
MARKER = NOOP[:12] + b"done" + NOOP[16:]


def binary(opcode, key=b"", value=b"", extras=b""):
    """Encodes a request of memcached's binary protocol."""
    body = extras + key + value
    return struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, len(body), 0, 0) + body


# A `noop` comes behind the quiet ones, as their clients send it.
BINARY = {
    "get": binary(0x00, b"big"),
    "getkq-missing": b"".join([binary(0x0D, b"k")] * 8000) + NOOP,
    "gatkq-missing": b"".join([binary(0x24, b"k", extras=bytes(4))] * 8000) + NOOP,
    "append": binary(0x0E, b"grown", b"x"),
    "prependq": binary(0x1A, b"grown", b"x") + NOOP,
    "stat": binary(0x10),
    "stat-reset": binary(0x10, b"reset"),
    "flush": binary(0x08),
}
PIPELINED = 200
QUEUED = 1000


class Node:
    """A node with a listener of each protocol."""

    def __init__(self, options):
        command = [options.binary, "serve", "--memory", "512MiB", "--admin", "off", "--threads", str(options.threads)]
        command += ["--redis", "127.0.0.1:0", "--memcached", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "redis=" in line:
                self.ports = {name: int(re.search(rf"{name}=[\d.]+:(\d+)", line)[1]) for name in ("redis", "memcached")}
                return
        sys.exit("the node did not start")

    def connect(self, protocol):
        port = self.ports["redis" if protocol == "redis" else "memcached"]
        connection = socket.create_connection(("127.0.0.1", port), 120)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def stop(self):
        self.process.terminate()
        self.process.wait(20)


def fill(node):
    """Sets the values that the dear commands are about."""
    with node.connect("redis") as connection:
        left = bytes(97 + at * at % 7 for at in range(2048))
        right = bytes(97 + at * 3 % 5 for at in range(2048))
        values = [("big", b"b" * BIG), ("moved", b"m" * BIG), ("grown", b"g" * (MIB - 65536)), ("far", b"x")]
        values += [("left", left), ("right", right), ("number", b"9" * 4900), ("padded", b"1" + b" " * 1000)]
        pairs = [part for pair in values for part in pair]
        for at in range(0, len(pairs), 2):
            connection.sendall(redis("SET", pairs[at], pairs[at + 1]))
            assert connection.recv(64) == b"+OK\r\n"
        # Long keys for patterns to match.
        for key in range(2000):
            connection.sendall(redis("SET", f"{key:0240}", "v"))
            assert connection.recv(64) == b"+OK\r\n"


def wait_of_others(port, clients, begin, end, found):
    """Has clients ask one command at a time and reports their waits, in milliseconds."""
    selector = selectors.DefaultSelector()
    sent = {}
    for number in range(clients):
        connection = socket.create_connection(("127.0.0.1", port), 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(redis("SET", f"own{number}", "v"))
        assert connection.recv(64) == b"+OK\r\n"
        selector.register(connection, selectors.EVENT_READ, redis("GET", f"own{number}"))
    begin.set()
    waits = []
    for key in list(selector.get_map().values()):
        sent[key.fd] = time.perf_counter()
        key.fileobj.sendall(key.data)
    while not end.is_set():
        for key, _ in selector.select(0.05):
            key.fileobj.recv(64)
            now = time.perf_counter()
            waits.append(1000 * (now - sent[key.fd]))
            # One command in a millisecond and client would be enough; the others tell of the rest.
            sent[key.fd] = now
            key.fileobj.sendall(key.data)
    now = time.perf_counter()
    waits.extend(1000 * (now - at) for at in sent.values())
    waits.sort()
    found.put((waits[-1], waits[int(len(waits) * 0.999)], len(waits)))


def drain(connection, count, protocol, said):
    """Reads until a marker behind `count` answers has been answered."""
    marker = {"redis": b"$4\r\ndone\r\n", "memcached": b"MN\r\n", "binary": b"\x81" + MARKER[1:]}[protocol]
    tail = b""
    while True:
        received = connection.recv(1 << 20)
        if not received:
            said.append(b"closed")
            return False
        if len(said) < 1:
            said.append(received[:100])
        tail = (tail + received)[-len(marker) :]
        if tail == marker:
            return True


def dear(node, protocol, requests, how, seconds):
    """Sends a dear command for some seconds; returns the start of the first answer, and rounds."""
    said, rounds, end = [], 0, time.monotonic() + seconds
    marker = {"redis": redis("ECHO", "done"), "memcached": b"mn\r\n", "binary": MARKER}[protocol]
    with node.connect(protocol) as connection:
        if how == "pipelined":
            # As many as take the node some seconds at most.
            began = time.monotonic()
            connection.sendall(b"".join(requests) + marker)
            drain(connection, 1, protocol, said)
            most = int(3 * seconds / (time.monotonic() - began))
            repeats = max(1, min(PIPELINED // len(requests), most))
            said.clear()
        while rounds == 0 or time.monotonic() < end:
            if isinstance(how, int):
                queue = (requests * how)[:how]
                connection.sendall(redis("MULTI"))
                assert connection.recv(64) == b"+OK\r\n"
                for at in range(0, len(queue), 100):
                    part = queue[at : at + 100]
                    connection.sendall(b"".join(part) + redis("ECHO", "x"))
                    answers = 0
                    while answers < len(part) + 1:
                        answers += connection.recv(1 << 20).count(b"\r\n")
                said.clear()
                connection.sendall(redis("EXEC") + redis("UNWATCH") + marker)
            elif how == "alone":
                connection.sendall(b"".join(requests) + marker)
            else:
                pipeline = b"".join(requests) * repeats + marker
                # A node stops reading from a client that does not take its answers.
                threading.Thread(target=connection.sendall, args=(pipeline,), daemon=True).start()
            if not drain(connection, 1, protocol, said):
                break
            rounds += 1
    return said[0][:60] if said else b"", rounds


def measure(options, node, name, protocol, requests, how):
    context = multiprocessing.get_context("fork")
    begin, end, found = context.Event(), context.Event(), context.Queue()
    others = context.Process(target=wait_of_others, args=(node.ports["redis"], options.clients, begin, end, found))
    others.start()
    begin.wait()
    time.sleep(0.1)
    said, rounds = (b"", 0)
    if requests:
        said, rounds = dear(node, protocol, requests, how, options.seconds)
    else:
        time.sleep(options.seconds)
    end.set()
    longest, tail, count = found.get()
    others.join()
    how = f"MULTI {how}" if isinstance(how, int) else how
    line = {"case": name, "how": how, "longest_ms": round(longest, 2), "p999_ms": round(tail, 2), "asked": count, "rounds": rounds}
    print(json.dumps(line), flush=True)
    print(f"{name:24}{how:12}{longest:10.2f} ms{tail:10.2f} ms  {said.decode(errors='replace')!r}", file=sys.stderr, flush=True)
    return longest


def cases(options):
    """Yields the name of a case, its protocol, its requests, and how they are sent."""
    for count, name in ((400, "lcs"), (1000, "lcs"), (1000, "bitcount")):
        yield f"{name}-{count}", "redis", REDIS[name], count
    for name, requests in REDIS.items():
        for how in ("alone", "pipelined", 20 if len(requests[0]) > 4096 else QUEUED):
            if name == "watch" and isinstance(how, int):
                continue
            yield f"redis {name}", "redis", requests, how
    for name, request in MEMCACHED.items():
        for how in ("alone", "pipelined"):
            yield f"memcached {name}", "memcached", [request], how
    for name, request in BINARY.items():
        for how in ("alone", "pipelined"):
            yield f"binary {name}", "binary", [request], how


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("cases", nargs="*", help="only those whose name contains one of these")
    parser.add_argument("--clients", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--bound-ms", type=float, default=20)
    options = parser.parse_intermixed_args()
    options.binary = os.path.abspath(options.binary)
    over = []

    def on_a_node(name, protocol, requests, how):
        # A node of its own for each, since some change or remove the values.
        node = Node(options)
        try:
            fill(node)
            return measure(options, node, name, protocol, requests, how)
        finally:
            node.stop()

    quiet = on_a_node("none", "redis", [], "before")
    for name, protocol, requests, how in cases(options):
        if options.cases and not any(wanted in name for wanted in options.cases):
            continue
        longest = on_a_node(name, protocol, requests, how)
        if longest > quiet + options.bound_ms:
            over.append((name, how, round(longest, 1)))
    on_a_node("none", "redis", [], "after")
    if over:
        sys.exit(f"waits over {options.bound_ms} ms beyond {quiet:.1f} ms: {over}")


if __name__ == "__main__":
    main()
