"""The profile `sizes` of memory.py: value sizes that shift while the cache is full.

The phases of PHASES follow one another without a pause, first in memcached, if it is installed,
then in a node. Both have 4 threads on SERVER_CORE; the sender is on LOAD_CORE. Keys are drawn at
random from a set that needs KEYS_RATIO of the budget, so that sets both replace and evict. A third
of them expire after TTL_S. `cpu µs` is the server's processor time per set, which other load on the
machine affects less than sets per second; `most MiB` the largest resident memory during a phase.
`sender` is the share of LOAD_CORE that the sender used with the node: near 1, it limits the result.

Fails if the node's resident memory was ever over the budget + RESIDENT_OVER_MIB, if it refused a
set, or if one of the last CHECKED keys of a phase was missing or had another value after it.
"""

import argparse
import collections
import math
import os
import random
import shutil
import socket
import sys
import time

import peers

MIB = 1 << 20
MEMORY_MIB = 512
RESIDENT_OVER_MIB = 78
PHASE_S = 15
THREADS = 4
TTL_S = 60
CHECKED = 200
VALUE_BYTES_MAX = 900_000
KEY_BYTES = 20
KEYS_RATIO = 1.5
CONNECTIONS = 4
# Every connection has at most one batch in flight.
BATCH_SETS = 100
BATCH_BYTES = 256 << 10
TEMPLATES = 128
# Placeholder for a batch's number, in keys and at the beginning of values. BODY does not contain it.
MARK = b"########"
# Values from this size on are sent from BODY without a copy.
APART_BYTES = 2048
BODY = random.Random(1).randbytes(VALUE_BYTES_MAX).hex().encode()
TIMEOUT_S = 60
SERVER_CORE = os.environ.get("SERVER_CORE", "0")
LOAD_CORE = os.environ.get("LOAD_CORE", "1")

# Value sizes of each phase, bytes.
PHASES = [
    ("50 B", lambda draw: 50),
    ("1 KiB", lambda draw: 1024),
    ("lognormal", lambda draw: int(min(max(draw.lognormvariate(math.log(1100), 1.8), len(MARK)), VALUE_BYTES_MAX))),
    ("300 KB", lambda draw: 300_000),
    ("20 B", lambda draw: 20),
    ("20/5k/100k", lambda draw: draw.choice((20, 5_000, 100_000))),
    ("8,100 B", lambda draw: 8_100),
    ("50 B again", lambda draw: 50),
]


class Template:
    """A batch of sets without its number, which makes its keys and values distinct."""

    def __init__(self, sizes, indexes, draw):
        self.sets, self.parts, text = [], [], b""
        for at, (size, index) in enumerate(zip(sizes, indexes)):
            key, rest = b"key:%b:%07d" % (MARK, index), size - len(MARK)
            start = draw.randrange(len(BODY) - rest)
            value = memoryview(BODY)[start : start + rest]
            self.sets.append((key, value))
            text += b"set %b 0 %d %d\r\n%b" % (key, 0 if at % 3 else TTL_S, size, MARK)
            if size >= APART_BYTES:
                self.parts += [text, value]
                text = b""
            else:
                text += value
            text += b"\r\n"
        self.parts.append(text)

    def numbered(self, number):
        return [part.replace(MARK, number) if isinstance(part, bytes) else part for part in self.parts]

    def stored(self, number):
        """Yields the keys and values of a batch."""
        for key, value in self.sets:
            yield key.replace(MARK, number), number + value.tobytes()


class Phase:
    def __init__(self, name, size, budget_bytes):
        draw = random.Random(name)
        self.name, batches = name, [self.sizes(size, draw) for _ in range(TEMPLATES)]
        # A batch has a quarter of its number's keys, and the next one of this number other ones.
        indexes = range(4 * max(len(sizes) for sizes in batches))
        self.templates = [Template(sizes, draw.sample(indexes, len(sizes)), draw) for sizes in batches]
        mean = sum(map(sum, batches)) / sum(map(len, batches)) + KEY_BYTES
        self.numbers = math.ceil(KEYS_RATIO * budget_bytes / mean / len(indexes) / CONNECTIONS)

    @staticmethod
    def sizes(size, draw):
        sizes = [size(draw)]
        while len(sizes) < BATCH_SETS and sum(sizes) < BATCH_BYTES:
            sizes.append(size(draw))
        return sizes


Result = collections.namedtuple("Result", "rate cpu_us refused wrong most sender")


def reset_most(server):
    with open(f"/proc/{server.process.pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def most_bytes(server):
    """Returns the largest resident memory since the last reset."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def send(connection, parts):
    """Sends all parts, continuing after short writes."""
    sent = connection.sendmsg(parts)
    if sent == sum(map(len, parts)):
        return
    for part in parts:
        if sent < len(part):
            connection.sendall(memoryview(part)[sent:])
        sent = max(0, sent - len(part))


def receive(connection):
    return connection.recv(1 << 16) or sys.exit("a server closed a connection")


def refused(connection, sets):
    """Reads the answers to a batch and returns the number of those other than `STORED`."""
    answers = receive(connection)
    while answers.count(b"\n") < sets:
        answers += receive(connection)
    return sets - answers.split(b"\r\n").count(b"STORED")


def wrong(connection, batches):
    """Gets the last keys and returns the number of those not found with the value that was set."""
    last = {}
    for number, template in batches:
        for key, value in template.stored(number):
            # A key that is set again moves to the end.
            last.pop(key, None)
            last[key] = value
    count = 0
    with connection.makefile("rb") as answers:
        for key in list(last)[-CHECKED:]:
            connection.sendall(b"get %b\r\n" % key)
            head, found = answers.readline().split(), None
            if head[0] == b"VALUE":
                found = answers.read(int(head[3]))
                answers.readline()
                answers.readline()
            count += found != last[key]
    return count


def run_phase(phase, server, connections):
    draw, batches = random.Random(2), collections.deque(maxlen=2 * CHECKED)
    in_flight, sets, refusals, turn = [0] * CONNECTIONS, 0, 0, 0
    reset_most(server)
    server_s, sender_s, began = server.cpu_s(), time.process_time(), time.monotonic()
    while time.monotonic() < began + PHASE_S:
        if in_flight[turn]:
            refusals += refused(connections[turn], in_flight[turn])
        template = phase.templates[int(draw.random() * TEMPLATES)]
        # Sets are ordered only within a connection, so each has keys of its own.
        number = b"%08d" % (int(draw.random() * phase.numbers) * CONNECTIONS + turn)
        send(connections[turn], template.numbered(number))
        batches.append((number, template))
        in_flight[turn] = len(template.sets)
        sets += len(template.sets)
        turn = (turn + 1) % CONNECTIONS
    for connection, waiting in zip(connections, in_flight):
        refusals += refused(connection, waiting)
    took, sender_s, server_s = time.monotonic() - began, time.process_time() - sender_s, server.cpu_s() - server_s
    missed = wrong(connections[0], batches)
    stored = max(sets - refusals, 1)
    return Result(stored / took, server_s * 1e6 / stored, refusals, missed, most_bytes(server), sender_s / took)


def run(name, command, port, phases):
    """Yields the result of each phase."""
    server, connections = peers.Server(name, "memcached", port, command, SERVER_CORE), []
    try:
        server.wait_until_ready()
        connections = [socket.create_connection(("127.0.0.1", port), TIMEOUT_S) for _ in range(CONNECTIONS)]
        for phase in phases:
            yield run_phase(phase, server, connections)
    except OSError as error:
        sys.exit(f"{name} does not answer: {error}")
    finally:
        for connection in connections:
            connection.close()
        server.stop()


def run_memcached(args, memory_mib, phases):
    if not shutil.which(args.memcached):
        print(f"without memcached: there is no `{args.memcached}`")
        return [None] * len(phases)
    print(f"beside {peers.version([args.memcached, '-V'])}", flush=True)
    port = peers.free_port()
    return list(run("memcached", peers.memcached_command(args.memcached, port, THREADS, memory_mib), port, phases))


def run_node(args, memory_mib, phases):
    port = peers.free_port()
    options = argparse.Namespace(sherwood=args.binary, memory_mib=memory_mib, sherwood_flags="")
    return run("sherwood", peers.sherwood_command(options, "memcached", THREADS, port), port, phases)


def measure(args):
    """Runs all phases and returns true if the checks hold."""
    memory_mib = args.memory_mib or MEMORY_MIB
    os.sched_setaffinity(0, {int(LOAD_CORE)})
    phases = [Phase(name, size, memory_mib * MIB) for name, size in PHASES]
    theirs, ours = run_memcached(args, memory_mib, phases), []
    heads = ["set/s", "memcached", "ratio", "cpu µs", "memcached", "most MiB", "memcached", "refused", "wrong", "sender"]
    print(f"{'':<10}", *(f"{head:>9}" for head in heads), flush=True)
    for phase, their, our in zip(phases, theirs, run_node(args, memory_mib, phases)):
        ours.append(our)
        rate, ratio, cpu_us, most = "-", "-", "-", "-"
        if their:
            rate, ratio = f"{their.rate:.0f}", f"{our.rate / their.rate:.2f}"
            cpu_us, most = f"{their.cpu_us:.2f}", f"{their.most / MIB:.1f}"
        figures = [f"{our.rate:.0f}", rate, ratio, f"{our.cpu_us:.2f}", cpu_us, f"{our.most / MIB:.1f}", most]
        figures += [our.refused, our.wrong, f"{our.sender:.2f}"]
        print(f"{phase.name:<10}", *(f"{figure:>9}" for figure in figures), flush=True)
    most, bound = max(our.most for our in ours) / MIB, memory_mib + RESIDENT_OVER_MIB
    refusals, missed = sum(our.refused for our in ours), sum(our.wrong for our in ours)
    held = most <= bound and refusals == 0 and missed == 0
    print(
        f"{'ok' if held else 'FAILED'}: resident memory at most {most:.1f} MiB of {bound}, {refusals} sets refused, "
        f"{missed} of {len(ours) * CHECKED} last keys missing or with a wrong value"
    )
    return held
