#!/usr/bin/env python3
"""Compares a warm restart with a cold one: a node is filled, stopped by SIGTERM, and started again.

An application looks up keys at a memcached listener, a hundred at a time, by Zipf's law, and
stores the misses. It does so for a second before the stop, and for a second from the moment the
node is ready. A JSON line for each run goes to stdout: the times to write and to read the
snapshot, and the hit ratios in these seconds. The second run has no snapshot.
"""

import argparse
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SHERWOOD = os.path.abspath(os.environ.get("SHERWOOD", os.path.join(HERE, "../../target/release/sherwood")))
KEYS_AT_ONCE = 100
# Bytes of an item besides its key and value, rounded up.
ITEM_BYTES = 60


class Node:
    """A node with one listener, from its start to its end."""

    processes = []

    def __init__(self, config):
        began = time.monotonic()
        self.process = subprocess.Popen([SHERWOOD, "serve", "--config", config], text=True, stderr=subprocess.PIPE)
        self.processes.append(self.process)
        self.said = ""
        while not (line := self.process.stderr.readline()).startswith("ready"):
            self.said += line
            if not line:
                raise SystemExit(f"the node did not start: {self.said}")
        self.start_s = time.monotonic() - began
        address = re.search(r"memcached=(\S+)", line)[1]
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.file = self.socket.makefile("rb", 1 << 16)

    def stop(self):
        """Stops the node gracefully; returns the time that took, and the output."""
        began = time.monotonic()
        self.socket.close()
        self.process.send_signal(signal.SIGTERM)
        self.said += self.process.communicate()[1]
        if self.process.returncode:
            raise SystemExit(f"the node ended with {self.process.returncode}: {self.said}")
        return time.monotonic() - began

    def store(self, keys, value):
        head = b" 0 0 %d\r\n" % len(value)
        self.socket.sendall(b"".join(b"set " + key + head + value + b"\r\n" for key in keys))
        for _ in keys:
            line = self.file.readline()
            if line != b"STORED\r\n":
                raise SystemExit(f"a store was answered {line!r}")

    def look_up(self, keys, value):
        """Returns the missing ones of the keys."""
        self.socket.sendall(b"get " + b" ".join(keys) + b"\r\n")
        found = set()
        while (line := self.file.readline()) != b"END\r\n":
            found.add(line.split(b" ")[1])
            self.file.read(len(value) + 2)
        return [key for key in keys if key not in found]


def ask(node, draws, value, seconds):
    """Looks up keys and stores the misses for a while; returns the number of lookups and the hit ratio."""
    looked_up = missed = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        keys = list(dict.fromkeys(itertools.islice(draws, KEYS_AT_ONCE)))
        absent = node.look_up(keys, value)
        if absent:
            node.store(absent, value)
        looked_up, missed = looked_up + len(keys), missed + len(absent)
    return {"lookups": looked_up, "hit_ratio": round(1 - missed / looked_up, 4)}


def zipf(keys, seed):
    draw = random.Random(seed)
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(keys))))
    while True:
        yield from draw.choices(keys, cum_weights=weights, k=10_000)


def figures(pattern, said):
    match = re.search(pattern, said)
    return [int(number) for number in match.groups()] if match else [None] * re.compile(pattern).groups


def run(args, directory, warm):
    path = os.path.join(directory, "snapshot")
    config = os.path.join(directory, "sherwood.toml")
    with open(config, "w", encoding="ascii") as out:
        snapshot = f'snapshot = {{ path = "{path}", max_time = "{args.max_time}" }}\n' if warm else ""
        backends = "".join(f'[[backend]]\nname = "b{number}"\nprefix = "{number}/"\n' for number in range(args.backends))
        out.write(f'[memory]\ntotal = "{args.memory_mib}MiB"\n{snapshot}{backends}[control]\npolicy = "static"\n'
                  '[[listener]]\nbind = "127.0.0.1:0"\nroute = "prefix"\n[admin]\nbind = "off"\n')
    value = random.Random(0).randbytes(args.value_bytes)
    count = int((args.memory_mib << 20) * args.fill / (args.value_bytes + ITEM_BYTES))
    keys = [b"%d/%d" % (number % args.backends, number) for number in range(count)]
    node = Node(config)
    for at in range(0, count, 1000):
        node.store(keys[at:at + 1000], value)
    draws = zipf(random.Random(1).sample(keys, count), 2)
    before = ask(node, draws, value, args.seconds)
    stop_s = node.stop()
    items, size, write_ms = figures(r"snapshot: (\d+) items of (\d+) bytes in (\d+) ms", node.said)
    result = {"variant": "warm" if warm else "cold", "items_stored": count, "items_written": items, "bytes_written": size,
              "write_ms": write_ms, "cut_short": "no time for more" in node.said, "stop_s": round(stop_s, 2), "before": before}
    node = Node(config)
    after = ask(node, draws, value, args.seconds)
    node.stop()
    items, read_ms = figures(r"warm start: (\d+) items of \d+ bytes in (\d+) ms", node.said)
    return {**result, "items_read": items, "read_ms": read_ms, "start_s": round(node.start_s, 2), "after": after}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-mib", type=int, default=1024, help="of the cache [default: 1024]")
    parser.add_argument("--value-bytes", type=int, default=1000, help="of each value [default: 1000]")
    parser.add_argument("--fill", type=float, default=0.9, help="part of the memory that is filled [default: 0.9]")
    parser.add_argument("--backends", type=int, default=5, help="that the keys are of, and partitions [default: 5]")
    parser.add_argument("--max-time", default="10s", help="for writing the snapshot [default: 10s, the node's own]")
    parser.add_argument("--seconds", type=float, default=1.0, help="of look-ups before and after [default: 1]")
    args = parser.parse_args()
    try:
        for warm in (True, False):
            with tempfile.TemporaryDirectory() as directory:
                print(json.dumps(run(args, directory, warm)), flush=True)
    finally:
        for process in Node.processes:
            if process.poll() is None:
                process.kill()


if __name__ == "__main__":
    main()
