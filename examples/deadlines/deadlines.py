#!/usr/bin/env python3
"""States deadlines by flag U of memcached's meta commands.

    sherwood serve --config examples/deadlines.toml
    python3 examples/deadlines/deadlines.py 127.0.0.1:11311 [DEADLINE_MS]

Asks for twenty rankings at once, each wanted within 200 ms, from a backend that computes one at a
time. The node answers in order of the deadlines, and refuses at once what would come too late.
"""

import collections
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

REQUESTS = 20


def read(address, key, within_ms):
    """Returns the outcome of a read, `met`, `late`, `rejected` or an error, and the value."""
    with socket.create_connection(address, timeout=30) as connection:
        answers = connection.makefile("rb")
        start = time.monotonic()
        connection.sendall(f"mg {key} v U{within_ms}\r\n".encode())
        header = answers.readline().decode().strip()
        if header.startswith("SERVER_ERROR rejected"):
            return "rejected", None  # known at once: time is left to do without the value
        if not header.startswith("VA "):
            return header, None  # EN: there is no such key, or the backend failed
        value = answers.read(int(header.split()[1]))
        late = time.monotonic() - start > within_ms / 1e3
        return ("late" if late else "met"), value


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    within_ms = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    run = time.time_ns()  # keys of its own, which are not cached yet
    with ThreadPoolExecutor(REQUESTS) as pool:
        reads = [pool.submit(read, (host, int(port)), f"python:{run}:{at}", within_ms) for at in range(REQUESTS)]
        count = collections.Counter(outcome for outcome, _ in (one.result() for one in reads))
    met, late, rejected = (count.pop(outcome, 0) for outcome in ("met", "late", "rejected"))
    print(f"{REQUESTS} requests: {met} met, {late} late, {rejected} rejected")
    if count:
        sys.exit(f"failed: {dict(count)}")


main()
