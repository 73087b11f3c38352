#!/usr/bin/env python3
"""Measures the bytes per item beside key and value of Sherwood, memcached, Redis and Valkey.

Each server gets more memory than it needs and ITEMS distinct keys of 20 bytes, pipelined over one
connection, and is asked for its number of items. Prints a JSON line for each server and value
size: the growth of the process's memory (PSS: its own pages and its share of shared ones), less
the bytes of keys and values, divided by the items.
"""

import argparse
import json
import re
import sys

import peers

ITEMS = 2_000_000
KEY_BYTES = 20
# Items sent before their answers are read.
BATCH = 500


def pss_bytes(server):
    with open(f"/proc/{server.process.pid}/smaps_rollup", encoding="ascii") as rollup:
        return next(int(line.split()[1]) << 10 for line in rollup if line.startswith("Pss:"))


def read(connection, count):
    answer = b""
    while len(answer) < count:
        answer += connection.recv(count - len(answer)) or sys.exit("a server closed a connection")
    return answer


def store(server, connection, value_bytes):
    """Stores every item."""
    value = b"x" * value_bytes
    if server.protocol == "memcached":
        form, stored = b"set %b 0 0 " + b"%d\r\n" % value_bytes + value + b"\r\n", b"STORED\r\n"
    else:
        form = b"*3\r\n$3\r\nSET\r\n$%d\r\n" % KEY_BYTES + b"%b\r\n" + b"$%d\r\n" % value_bytes + value + b"\r\n"
        stored = b"+OK\r\n"
    for first in range(0, ITEMS, BATCH):
        connection.sendall(b"".join(form % (b"key:%016d" % number) for number in range(first, first + BATCH)))
        answers = read(connection, len(stored) * BATCH)
        if answers != stored * BATCH:
            raise SystemExit(f"{server.name} answered {answers[:200]!r}")


def count(server, connection):
    """Returns the number of items that the server reports."""
    asked, end = (b"stats\r\n", b"END\r\n") if server.protocol == "memcached" else (b"DBSIZE\r\n", b"\r\n")
    connection.sendall(asked)
    answer = b""
    while not answer.endswith(end):
        answer += connection.recv(1 << 16) or sys.exit(f"{server.name} closed a connection")
    return int(re.search(rb"STAT curr_items (\d+)|^:(\d+)", answer).expand(rb"\1\2"))


def measure(server, value_bytes):
    connection = server.ask_once()
    before = pss_bytes(server)
    store(server, connection, value_bytes)
    held = count(server, connection)
    if held != ITEMS:
        raise SystemExit(f"{server.name} holds {held} of {ITEMS} items")
    taken = pss_bytes(server) - before
    connection.close()
    return {
        "case": "items",
        "server": server.name,
        "protocol": server.protocol,
        "items": ITEMS,
        "key_bytes": KEY_BYTES,
        "value_bytes": value_bytes,
        "pss_bytes": taken,
        "bytes_beside_key_and_value": round(taken / ITEMS - KEY_BYTES - value_bytes, 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_servers(parser)
    parser.add_argument("--values", default="100,1024", help="sizes of values [default: %(default)s]")
    parser.set_defaults(memory_mib=4096)
    options = parser.parse_args()
    names = options.servers or ["sherwood", "other", "memcached", "redis", "valkey"]
    for value_bytes in (int(size) for size in options.values.split(",")):
        print(f"\nitems: {ITEMS} values of {value_bytes} bytes", file=sys.stderr)
        for name in names:
            # None when it is not installed.
            for server in peers.start_servers(options, 1, None, only=[name]):
                try:
                    line = measure(server, value_bytes)
                finally:
                    server.stop()
                print(json.dumps(line), flush=True)
                print(f"  {name:<16}{line['bytes_beside_key_and_value']:>8.1f} bytes an item", file=sys.stderr)


if __name__ == "__main__":
    main()
