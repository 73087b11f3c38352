#!/usr/bin/env python3
"""Checks a node's memory rule: fills and churns a cache over the memcached protocol.

    scripts/memory.py target/release/sherwood [--memory-mib 256] [--deadline-s 300] [--only shift]
    scripts/memory.py target/release/sherwood --only sizes [--memcached /usr/bin/memcached]

Resident memory may be at most that at the start + the budget + max(64 MiB, 15% of the budget) +
the buffers of connections, each of which may hold one value in each direction. Every profile runs
in a node of its own. `shift` runs them one after the other in one node, and `swing` goes from the
smallest values to the largest and back, which fragments memory most. `held` is the share of the
budget in use at the end. Exit status 0 when the rule holds for all profiles, else 1. Takes a
minute or two and needs only Python.

`sizes` runs only when asked for, since it takes over four minutes. Value sizes shift while a cache
of 512 MiB is full: phases of 15 seconds with values from 20 B to 900 KB, a third with a TTL. It
prints the sets per second of each phase beside memcached's (option or variable MEMCACHED), if that
is installed, and the largest resident memory. Exit status 1 if that was ever over the budget + 78
MiB, a set was refused, or one of the last keys of a phase was not found with its value. Needs two
cores and `taskset`.

A profile that does not end before its deadline has hung (in `shift` and `swing`, one of the
profiles they run). Its progress and the state of every thread of the node are printed, the node
is killed, and the other profiles still run. A debug build takes ten times as long as a release
build; a loaded machine takes longer too.
"""

import argparse
import collections
import os
import random
import pathlib
import re
import socket
import subprocess
import sys
import threading

import memory_sizes

MIB = 1 << 20
MEMORY_MIB = 256
VALUE_BYTES_MAX = 900 << 10
# Value sizes of each profile, bytes.
PROFILES = {
    "100 B": lambda draw: 100,
    "1 KiB": lambda draw: 1024,
    "64-300 KiB": lambda draw: draw.randint(64 << 10, 300 << 10),
    "0-2 KiB": lambda draw: draw.randint(0, 2048),
    "16 B": lambda draw: 16,
    "900 KiB": lambda draw: VALUE_BYTES_MAX,
}
SWING = ["16 B", "900 KiB", "16 B", "900 KiB", "16 B"]
# Number of times the budget is overwritten, in bytes of keys and values.
ROUNDS = 4
# Bytes sent before waiting for the answer.
BATCH_BYTES = 2 * MIB
KEY_BYTES = 20
CONNECTIONS = 8


class Node:
    """A node of one partition on a free port, with its memory at the start."""

    def __init__(self, binary, memory_mib):
        command = [binary, "serve", "--memory", f"{memory_mib}MiB", "--memcached", "127.0.0.1:0", "--admin", "off"]
        command += ["--threads", "4"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            ready = re.search(r"^ready .*memcached=([\d.]+):(\d+)", line)
            if ready:
                break
        else:
            sys.exit("the node did not start")
        # The node's output has to be read: a full pipe would block the thread that writes it.
        threading.Thread(target=collections.deque, args=(self.process.stderr, 0), daemon=True).start()
        address = (ready[1], int(ready[2]))
        # Several connections, so that threads free memory that others allocated.
        self.sockets = [socket.create_connection(address, timeout=60) for _ in range(CONNECTIONS)]
        self.turn = 0
        self.start_bytes = self.memory("VmRSS")

    def memory(self, field):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith(field + ":"))

    def send(self, commands):
        """Sends commands without answers and waits until they are executed."""
        self.turn = (self.turn + 1) % CONNECTIONS
        self.ask(commands + b"no_such_command\r\n", b"ERROR\r\n")

    def ask(self, commands, end):
        connection, answer = self.sockets[self.turn], b""
        connection.sendall(commands)
        while not answer.endswith(end):
            received = connection.recv(1 << 16)
            if not received:
                raise ConnectionError("the node closed a connection")
            answer += received
        return answer

    def held(self):
        stats = self.ask(b"stats\r\n", b"END\r\n").decode().split("\r\n")
        return next(int(line.split()[2]) for line in stats if line.startswith("STAT bytes "))

    def threads(self):
        """Returns every thread with its state and its wait channel in the kernel."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        for task in sorted(tasks.iterdir()):
            status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
            cpu = (task / "stat").read_text().rpartition(")")[2].split()[11:13]
            yield f"{status['Name']}: {status['State']}, ticks of CPU {'+'.join(cpu)}, in {(task / 'wchan').read_text()}"

    def stop(self):
        for connection in self.sockets:
            connection.close()
        self.process.terminate()
        self.process.wait(timeout=30)


def churn(node, sizes, budget_bytes, draw):
    """Overwrites keys at random until the budget has been written ROUNDS times; the keys together need 1.5 budgets."""
    mean = sum(sizes(draw) for _ in range(1000)) / 1000 + KEY_BYTES
    keys = int(1.5 * budget_bytes / mean)
    body = bytes(draw.getrandbits(8) for _ in range(VALUE_BYTES_MAX)) if mean > 4096 else bytes(2048)
    left = ROUNDS * budget_bytes
    while left > 0:
        batch, size = [], 0
        while size < BATCH_BYTES:
            value = body[: sizes(draw)]
            # `randrange` would take longer than the node's own work.
            batch.append(b"set key:%016d 0 0 %d noreply\r\n%b\r\n" % (int(draw.random() * keys), len(value), value))
            size += len(value) + KEY_BYTES
        node.send(b"".join(batch))
        left -= size


class Deadline:
    """Kills the node when a profile takes too long, after printing its progress."""

    def __init__(self, node, seconds):
        self.node, self.seconds, self.passed = node, seconds, False
        self.begin("the start")

    def begin(self, at):
        self.at = at
        self.timer = threading.Timer(self.seconds, self.expire)
        self.timer.daemon = True
        self.timer.start()

    def end(self):
        self.timer.cancel()

    def expire(self):
        self.passed = True
        print(f"hung: still at {self.at}; the node's threads:", *self.node.threads(), sep="\n  ", flush=True)
        self.node.process.kill()


def measure(name, profiles, args):
    memory_mib = args.memory_mib or MEMORY_MIB
    draw, budget = random.Random(1), memory_mib * MIB
    node = Node(args.binary, memory_mib)
    deadline = Deadline(node, args.deadline_s)
    try:
        for number, profile in enumerate(profiles, start=1):
            deadline.end()
            deadline.begin(f"{profile!r}, number {number} of {len(profiles)}")
            churn(node, PROFILES[profile], budget, draw)
        held, now, most = node.held(), node.memory("VmRSS"), node.memory("VmHWM")
    except OSError as error:
        # A connection timed out, or the node was killed or has died.
        if not deadline.passed:
            deadline.expire()
        print(f"{name:<12} HUNG: {error}", flush=True)
        return False
    finally:
        deadline.end()
        node.stop()
    bound = node.start_bytes + budget + max(64 * MIB, budget * 15 // 100) + CONNECTIONS * 2 * VALUE_BYTES_MAX
    shown = [f"{value / MIB:8.1f}" for value in (node.start_bytes, held, now, most, bound)]
    print(f"{name:<12} {'  '.join(shown)}  {'ok' if most <= bound else 'OVER'}", flush=True)
    return most <= bound


def main():
    runs = {name: [name] for name in PROFILES} | {"shift": [*PROFILES, *reversed(PROFILES)], "swing": SWING}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--memory-mib", type=int, help=f"[default: {MEMORY_MIB}, {memory_sizes.MEMORY_MIB} for `sizes`]")
    parser.add_argument("--deadline-s", type=float, default=300, help="of a profile other than `sizes`")
    parser.add_argument("--only", metavar="PROFILE", choices=[*runs, "sizes"], help="one of them: %(choices)s")
    parser.add_argument("--memcached", default=os.environ.get("MEMCACHED", "memcached"), help="the binary that `sizes` compares with")
    args = parser.parse_args()
    if args.only == "sizes":
        return 0 if memory_sizes.measure(args) else 1
    print(f"{'MiB':<12} {'start':>8}  {'held':>8}  {'now':>8}  {'most':>8}  {'bound':>8}")
    chosen = {name: profiles for name, profiles in runs.items() if args.only in (None, name)}
    held = [measure(name, profiles, args) for name, profiles in chosen.items()]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
