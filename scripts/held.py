#!/usr/bin/env python3
"""Measures what clients of a node can take from its cache by memory that they have it hold.

    scripts/held.py <sherwood> [--clients 600] [--transactions 100]

Each case fills a node of 32 MiB with 20,000 items and counts those that are left three seconds
after clients have had the node hold memory, and again after they have closed:

- `watched`: clients each watch 1,024 keys of the greatest length;
- `queued`: clients of one tenant each queue a transaction of 8 MiB, and the items are another
  tenant's;
- `long`: clients each watch 1,024 keys of 16 KiB.

Prints the items left and the largest resident memory. Exit status: 0 when at least 98 of 100 items
are left in each case, and resident memory never exceeded the total, 64 MiB, `buffers` and 64 MiB
for the program and the connections. Takes a minute and needs only Python.
"""

import argparse
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
ITEMS = 20_000
BYTES_MAX = (32 + 64 + 256 + 64) * MIB
TIMEOUT_S = 60
SETTLE_S = 3

CONFIG = """
[memory]
total = "32MiB"
[server]
max_connections = {connections}
[control]
policy = "static"
[[tenant]]
name = "gold"
users = ["gold"]
weight = 1
[[tenant]]
name = "silver"
users = ["silver"]
weight = 20
[[backend]]
name = "plain"
[[listener]]
protocol = "redis"
bind = "127.0.0.1:0"
backend = "plain"
auth_file = "{users}"
"""


class Client:
    def __init__(self, port, user):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.lines = self.socket.makefile("rb")
        if self.ask(b"AUTH", user, b"12345678") != b"+OK":
            sys.exit("the client is not admitted")

    def send(self, *words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))

    def line(self):
        return self.lines.readline().rstrip()

    def ask(self, *words):
        self.send(*words)
        return self.line()

    def close(self):
        self.lines.close()
        self.socket.close()


class Node:
    def __init__(self, binary, directory, connections):
        users, config = directory / "users", directory / "node.toml"
        users.write_text("gold:12345678\nsilver:12345678\n")
        users.chmod(0o600)
        config.write_text(CONFIG.format(connections=connections + 10, users=users))
        arguments = [binary, "serve", "--config", str(config), "--admin", "off"]
        self.process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if line.startswith("ready"):
                self.port = int(line.split("redis=")[1].split()[0].rsplit(":", 1)[1])
                return
        sys.exit("the node ended before it was ready:\n" + "".join(said))

    def resident(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) << 10
        sys.exit("no VmRSS")

    def end(self):
        self.process.kill()
        self.process.wait()


def fill(client):
    value = b"x" * 1000
    for first in range(0, ITEMS, 100):
        for item in range(first, first + 100):
            client.send(b"SET", b"item:%d" % item, value)
        for _ in range(100):
            if client.line() != b"+OK":
                sys.exit("an item is refused")
    return int(client.ask(b"DBSIZE")[1:])


def settle(node, client):
    """Stores for some seconds, in which the node looks at its memory, and returns the items left
    and the largest resident memory."""
    end, most = time.monotonic() + SETTLE_S, 0
    while time.monotonic() < end:
        client.ask(b"SET", b"item:0", b"changed")
        most = max(most, node.resident())
    return int(client.ask(b"DBSIZE")[1:]), most


def watch(bytes_each):
    names = [b"%0*d" % (bytes_each, number) for number in range(1024)]

    def hold(client):
        # Long keys are sent in several commands.
        step = max(1, (1 << 19) // bytes_each)
        parts = [names[at : at + step] for at in range(0, len(names), step)]
        return all([client.ask(b"WATCH", *part) == b"+OK" for part in parts])

    return hold


def queue(client):
    value = b"x" * 900_000
    client.ask(b"MULTI")
    return all([client.ask(b"SET", b"k", value) == b"+QUEUED" for _ in range(9)])


def measure(binary, case, clients, user, hold):
    with tempfile.TemporaryDirectory() as directory:
        node = Node(binary, pathlib.Path(directory), clients)
        try:
            owner = Client(node.port, b"silver")
            before = fill(owner)
            holding = [Client(node.port, user) for _ in range(clients)]
            held = sum(hold(client) for client in holding)
            during, most = settle(node, owner)
            for client in holding:
                client.close()
            after, later = settle(node, owner)
        finally:
            node.end()
    most = max(most, later)
    print(f"{case}: {clients} clients, {held} of which hold all they asked for, {before} items, {during} left, "
          f"{after} after they closed, at most {most / MIB:.0f} MiB resident", flush=True)
    return min(during, after) >= 0.98 * before and most <= BYTES_MAX


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sherwood")
    parser.add_argument("--clients", type=int, default=600)
    parser.add_argument("--transactions", type=int, default=100)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    good = [
        measure(arguments.sherwood, "watched", arguments.clients, b"silver", watch(250)),
        measure(arguments.sherwood, "queued", arguments.transactions, b"gold", queue),
        measure(arguments.sherwood, "long", arguments.clients, b"silver", watch(16 << 10)),
    ]
    sys.exit(0 if all(good) else 1)


main()
