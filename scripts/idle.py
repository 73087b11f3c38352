#!/usr/bin/env python3
"""Measures the memory that idle connections take in a node.

    scripts/idle.py <sherwood> [<connections>]     default: 10000, or what `ulimit -n` allows

A tenth of the clients send one command each and wait for the answer; the others send nothing.
While all are open, another client is served. Prints bytes per connection for each protocol. Exit
status: 0 when that client was served throughout and the server has no connection and no buffer
left after all clients have closed.
"""

import os
import resource
import socket
import subprocess
import sys
import time

PATIENCE_S = 60
COMMANDS = {"memcached": (b"get a\r\n", b"END\r\n"), "redis": (b"GET a\r\n", b"$-1\r\n")}


def start(binary, protocol, connections):
    arguments = [binary, "serve", "--memory", "64MiB", f"--{protocol}", "127.0.0.1:0", "--admin", "off"]
    arguments += ["--threads", "2", "--max-connections", str(connections + 10)]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("ready"):
            return process, int(line.split(f"{protocol}=")[1].split()[0].rsplit(":", 1)[1])
    sys.exit("the server ended before it was ready")


def resident(process):
    for line in open(f"/proc/{process.pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    sys.exit("no VmRSS")


def ask(client, protocol):
    command, answer = COMMANDS[protocol]
    client.sendall(command)
    received = b""
    while len(received) < len(answer):
        part = client.recv(len(answer) - len(received))
        if not part:
            break
        received += part
    if received != answer:
        sys.exit(f"{protocol}: {received!r} instead of {answer!r}")


def open_files(process):
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def measure(binary, protocol, connections):
    process, port = start(binary, protocol, connections)
    try:
        active = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        ask(active, protocol)
        before, files = resident(process), open_files(process)
        clients = []
        for number in range(connections):
            client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
            clients.append(client)
            if number % 10 == 0:
                ask(client, protocol)
                ask(active, protocol)
        full = resident(process)
        for client in clients:
            client.close()
        deadline = time.monotonic() + PATIENCE_S
        while open_files(process) > files:
            if time.monotonic() > deadline:
                sys.exit(f"{protocol}: connections are open after {PATIENCE_S} s")
            time.sleep(0.01)
        ask(active, protocol)
        after = resident(process)
    finally:
        process.kill()
        process.wait()
    each = (full - before) / connections
    left = (after - before) / connections
    print(f"{protocol}: {connections} connections, {each:.0f} B each while idle, {left:.0f} B of it kept when they are gone")


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    binary = sys.argv[1]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = min(int(sys.argv[2]) if len(sys.argv) > 2 else 10_000, hard - 200)
    for protocol in COMMANDS:
        measure(binary, protocol, connections)


main()
