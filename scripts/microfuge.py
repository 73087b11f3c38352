#!/usr/bin/env python3
"""Measures MicroFuge's set-ups live: missed deadlines and rejections before a limited store.

Four replicas of the embedded LSM store, limited in operations per second, hold the same 100 MB, 400
MB in all. The cache has a fifth of the 100 MB. Keys, deadlines and their shares are those of MicroFuge's evaluation (and
of `sherwood sim`'s scenario microfuge): records drawn as by YCSB's ScrambledZipfianGenerator, a
fifth of them wanted within 10 to 30 ms, three tenths within 30 to 100 ms, the others within a
second. Clients ask for one key at a time without think time, by memcached's protocol.

Set-ups:

    memcached    clients look aside in Debian's memcached; misses are read through a node that keeps
                 nothing, from a random replica, first come, first served, and then set
    dlc          Sherwood reads through, with deadline classes; random replica, first come first served
    dlc+dls      the same with queue = "edf" and balance = "tickets"
    dlc+dls+ac   the same with admit = "deadline"
    dlc-cost     dlc with cost = "measured"; this and the next do not run by default
    sherwood     dlc-cost with queue = "edf", balance = "tickets-all" and admit = "deadline", whose beta follows
                 target = 0.03

Cases: `setups` compares the four. `isolation` has two tenants at the gateway in an open loop: a
steady one whose keys are wanted within STEADY_MS, and one that bursts to ten times its rate for half
of the time. The steady tenant is measured alone and beside the other, without MicroFuge, with the
deadline cache and with everything. `alpha` and `beta` sweep a parameter of dlc+dls+ac, each value
once per round.

One set-up runs at a time. Each round runs all of a case with the same seeds, in another order; the
results are medians over rounds, and ratios are of runs of the same round. Missed and rejected are
shares of all requests, hits included; a failed request counts as missed. Latencies are of answered
requests. A run whose clients were late is marked: `client_late_p99_ms` is the delay of a timer in
the clients, which limits what can be said about short deadlines.

Without an argument `setups` and `isolation` run, in about 15 minutes, with 400 MB of stores in
--data, which are kept for the next time. JSON lines go to stdout, progress and tables to stderr.
Needs the example `fill` of crates/store.
"""

import argparse
import asyncio
import collections
import functools
import gc
import http.client
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from peers import Server, free_port, memcached_command

KEY_BYTES = 13
VALUE_BYTES = 1024
REPLICAS = 4
CACHE_RATIO = 0.2
# Set before the measurement, in draws per item that fits into the cache.
FILL_DRAWS = 2.0
# YCSB's ScrambledZipfianGenerator: see crates/workload/src/scrambled_zipf.rs.
RANKS, EXPONENT, ZETA = 1e16, 0.99, 26.46902820178302
LATE_MS = 5.0
SETUPS = {
    "memcached": {"dispatch": 'queue = "fifo", balance = "random"'},
    "dlc": {"dispatch": 'queue = "fifo", balance = "random"', "classes": "paper"},
    "dlc-cost": {"dispatch": 'queue = "fifo", balance = "random"', "classes": "measured"},
    "dlc+dls": {"dispatch": 'queue = "edf", balance = "tickets", alpha = {alpha}, beta = {beta}', "classes": "paper"},
    "dlc+dls+ac": {
        "dispatch": 'queue = "edf", balance = "tickets", admit = "deadline", alpha = {alpha}, beta = {beta}',
        "classes": "paper",
    },
    "sherwood": {
        "dispatch": 'queue = "edf", balance = "tickets-all", admit = "deadline", alpha = {alpha}, beta = {beta}, target = 0.03',
        "classes": "measured",
    },
    # For the isolation of tenants: a node that caches, without deadlines.
    "none": {"dispatch": 'queue = "fifo", balance = "random"'},
}
# Of the tenants: deadlines, and shares of the replicas' operations per second that they ask for.
STEADY_MS, BURSTING_MS = 30, 200
STEADY_RATIO, BURSTING_RATIO, BURST = 0.2, 0.2, 10
# A burst and the time until the next one.
BURST_S = 2.5
ISOLATION = (("alone", "dlc+dls+ac"), ("without MicroFuge", "none"), ("deadline cache", "dlc"), ("everything", "dlc+dls+ac"))


def fnv(number):
    value = 0xCBF29CE484222325
    for byte in number.to_bytes(8, "little"):
        value = ((value ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return value if value < 1 << 63 else (1 << 64) - value


class Keys:
    """Draws records and knows the deadline of each, in whole milliseconds."""

    SECOND_BELOW = 1 + 0.5**EXPONENT
    ETA = (1 - (2 / RANKS) ** (1 - EXPONENT)) / (1 - SECOND_BELOW / ZETA)

    def __init__(self, records, seed):
        self.records, self.random = records, random.Random(seed)

    def draw(self):
        part = self.random.random()
        scaled = part * ZETA
        if scaled < 1:
            rank = 0
        elif scaled < self.SECOND_BELOW:
            rank = 1
        else:
            rank = int(RANKS * (self.ETA * part - self.ETA + 1) ** (1 / (1 - EXPONENT)))
        return fnv(rank) % self.records

    @staticmethod
    @functools.cache
    def deadline_ms(record):
        draws = random.Random(fnv(record))
        part, place = draws.random(), draws.random()
        low, high = (10, 30) if part < 0.2 else (30, 100) if part < 0.5 else (100, 1001)
        return int(low + place * (high - low))


def key_of(record):
    return b"k%0*d" % (KEY_BYTES - 1, record)


class Node(Server):
    """A node before the replicas; `setup` names its rules, `tenants` have partitions of their own."""

    def __init__(self, options, name, setup, tenants=()):
        self.scratch = tempfile.TemporaryDirectory()
        self.admin_port, port = free_port(), free_port()
        keeps = name != "memcached"
        replicas = ", ".join(
            f'{{ kind = "kv", path = "{options.data}/replica{number}", threads = 1, queued_calls_max = 100000 }}'
            for number in range(REPLICAS)
        )
        total = round(options.records * VALUE_BYTES * CACHE_RATIO) if keeps else 1 << 20
        lines = ["[memory]", f"total = {total}", f'eviction = "{options.eviction}"', "mrc_sample = 0"]
        lines += ["[control]", 'policy = "static"', "[admin]", f'bind = "127.0.0.1:{self.admin_port}"']
        lines += ["[[listener]]", f'bind = "127.0.0.1:{port}"', 'mode = "read-through"', 'backend = "store"']
        lines += ["[[backend]]", 'name = "store"', 'timeout = "10s"', f"replicas = [{replicas}]"]
        if not keeps:
            lines.append('ttl_rules = [{ prefix = "k", ttl = "0s" }]')
        if setup.get("classes"):
            lines.append(f'deadlines = {{ classes = 10, upto = "100ms", cost = "{setup["classes"]}" }}')
        rules = setup["dispatch"].format(alpha=options.alpha, beta=options.beta)
        lines.append(f"dispatch = {{ {rules}, in_flight_calls_max = 1, queued_calls_max = 100000 }}")
        for tenant in tenants:
            lines += ["[[partition]]", 'backend = "store"', f'tenant = "{tenant}"', f"initial = {total // len(tenants) - (1 << 20)}"]
        path = os.path.join(self.scratch.name, "node.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        super().__init__("sherwood", "memcached", port, [options.sherwood, "serve", "--config", path], None)

    def request(self, method, path, body=None):
        admin = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=60)
        admin.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        answer = admin.getresponse()
        text = answer.read()
        admin.close()
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text)

    def limit(self, ops_per_s):
        self.request("PUT", "/v1/backends/store/limit", {"ops_per_s": ops_per_s})

    def looked_up(self):
        """Hits and misses of all partitions so far."""
        partitions = self.request("GET", "/v1/partitions")
        return sum(one["hits"] for one in partitions), sum(one["misses"] for one in partitions)

    def multipliers(self):
        """How long items of each deadline class stay, in relation to the mean, at this moment."""
        return [round(one["multiplier"], 3) for one in self.request("GET", "/v1/partitions")[0]["classes"]]

    def fill_tenant(self, tenant, records):
        """Reads these records for a tenant, which caches them."""
        for at in range(0, len(records), 400):
            keys = [key_of(record).decode() for record in records[at : at + 400]]
            query = {"backend": "store", "keys": keys, "best_effort": True}
            self.request("POST", "/v1/requests", {"values": False, "tenant": tenant, "queries": [query]})

    def stop(self):
        super().stop()
        self.scratch.cleanup()


def fill(port, records, keys, deadlines):
    """Sets these records, with their deadlines where the cache knows them."""
    value = b"v" * VALUE_BYTES
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        for at in range(0, len(records), 500):
            connection.sendall(b"".join(
                b"ms %b %d q%b\r\n%b\r\n"
                % (key_of(record), VALUE_BYTES, b" U%d" % keys.deadline_ms(record) if deadlines else b"", value)
                for record in records[at : at + 500]
            ))
        connection.sendall(b"mn\r\n")
        if connection.recv(64) != b"MN\r\n":
            raise SystemExit(f"the cache at port {port} refused a value")


class Connection:
    """A connection to one server."""

    async def open(self, port):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def get(self, key):
        self.writer.write(b"get %b\r\n" % key)
        line = await self.reader.readline()
        if line.startswith(b"VALUE "):
            value = await self.reader.readexactly(int(line.split()[3]) + 7)
            return value[:-7]
        if line != b"END\r\n":
            raise ConnectionError(f"answered {line!r}")
        return None


class LookAside:
    """Gets from memcached, and on a miss from the node, whose value it sets."""

    def __init__(self, cache_port, node_port):
        self.ports = cache_port, node_port

    async def open(self):
        self.cache, self.node = [await Connection().open(port) for port in self.ports]
        return self

    async def ask(self, record, _within_ms):
        key = key_of(record)
        if await self.cache.get(key) is not None:
            return "hit"
        value = await self.node.get(key)
        if value is None:
            return "failed"
        self.cache.writer.write(b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value))
        return "miss"


class ReadThrough(Connection):
    """Asks the node, with the deadline. Its counters tell hits from misses."""

    def __init__(self, port):
        self.port = port

    async def open(self):
        return await super().open(self.port)

    async def ask(self, record, within_ms):
        self.writer.write(b"mg %b v U%d\r\n" % (key_of(record), within_ms))
        line = await self.reader.readline()
        if line.startswith(b"VA "):
            await self.reader.readexactly(int(line.split()[1]) + 2)
            return "answered"
        return "rejected" if line.startswith(b"SERVER_ERROR rejected") else "failed"


class Gateway(Connection):
    """Asks the gateway for a tenant, with the deadline."""

    def __init__(self, port, tenant):
        self.port, self.tenant = port, tenant

    async def open(self):
        return await super().open(self.port)

    async def ask(self, record, within_ms):
        body = b'{"values":false,"tenant":"%b","deadline_ms":%d,"queries":[{"backend":"store","keys":["%b"]}]}'
        body %= (self.tenant.encode(), within_ms, key_of(record))
        head = b"POST /v1/requests HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.writer.write(head % len(body) + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        result = json.loads(await self.reader.readexactly(length))["results"][0]
        status = result["status"]
        return {"hit": "hit", "miss": "miss", "rejected": "rejected"}.get(status, "failed")


class Record:
    """Outcomes of requests that were to start in the measured time, and delays of the clients."""

    def __init__(self, start, seconds):
        self.start, self.end = start, start + seconds
        self.requests, self.late_ms = [], []

    def add(self, start, within_ms, outcome):
        if self.start <= start < self.end:
            self.requests.append((within_ms, (time.monotonic() - start) * 1e3, outcome))

    async def watch(self):
        while time.monotonic() < self.end:
            asked = time.monotonic()
            await asyncio.sleep(0.01)
            self.late_ms.append((time.monotonic() - asked) * 1e3 - 10)

    def figures(self):
        ratio = lambda count, of: round(count / max(of, 1), 5)
        missed = lambda one: one[2] == "failed" or (one[2] != "rejected" and one[1] > one[0])
        answered = sorted(took for _, took, outcome in self.requests if outcome not in ("rejected", "failed"))
        classes = collections.defaultdict(list)
        for one in self.requests:
            classes[next(upto for upto in (30, 100, 1001) if one[0] < upto)].append(one)
        counted = {
            name: {
                "requests": len(some),
                "missed_ratio": ratio(sum(map(missed, some)), len(some)),
                "rejected_ratio": ratio(sum(one[2] == "rejected" for one in some), len(some)),
            }
            for name, some in [("all", self.requests), *sorted(classes.items())]
        }
        return {
            **counted.pop("all"),
            "failed": sum(one[2] == "failed" for one in self.requests),
            "requests_per_s": round(len(self.requests) / (self.end - self.start), 1),
            "p50_ms": percentile(answered, 50),
            "p99_ms": percentile(answered, 99),
            "client_late_p99_ms": percentile(sorted(self.late_ms), 99),
            "below_ms": counted,
        }


def percentile(ordered, percent):
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))], 3) if ordered else None


async def closed_loop(options, clients, seed, counters):
    """Lets each client ask for one key after the other; returns the outcomes and the hits of the node."""
    began = time.monotonic()
    record = Record(began + options.warm_up, options.seconds)

    async def run(number, client):
        keys = Keys(options.records, seed * 1000 + number)
        await client.open()
        while (start := time.monotonic()) < record.end:
            drawn = keys.draw()
            within_ms = keys.deadline_ms(drawn)
            outcome = await client.ask(drawn, within_ms)
            record.add(start, within_ms, outcome)

    async def count():
        await asyncio.sleep(record.start - time.monotonic())
        before = await asyncio.to_thread(counters)
        await asyncio.sleep(record.end - time.monotonic())
        hits, misses = (after - was for after, was in zip(await asyncio.to_thread(counters), before))
        return hits / max(hits + misses, 1)

    *_, hit_ratio = await asyncio.gather(*(run(*one) for one in enumerate(clients)), record.watch(), count())
    return record, hit_ratio


async def open_loop(options, port, tenants, seed):
    """Sends the requests of tenants, pairs of a name and a function from time to rate; returns outcomes by tenant."""
    began = time.monotonic() + 0.1
    cycle = 2 * BURST_S
    seconds = max(1, round(options.seconds / cycle)) * cycle
    found = {name: Record(began + cycle, seconds) for name, *_ in tenants}
    under_way = set()

    async def one(record, start, idle, name, drawn, within_ms):
        connection = idle.pop() if idle else await Gateway(port, name).open()
        outcome = await connection.ask(drawn, within_ms)
        record.add(start, within_ms, outcome)
        idle.append(connection)

    async def run(number, name, rate, within_ms):
        record, idle = found[name], []
        keys, gaps = Keys(options.records, seed * 1000 + number), random.Random(seed * 1000 + number)
        start = began
        while start < record.end:
            start += gaps.expovariate(rate(start - began))
            await asyncio.sleep(max(0, start - time.monotonic()))
            task = asyncio.create_task(one(record, start, idle, name, keys.draw(), within_ms))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    watches = [record.watch() for record in found.values()]
    await asyncio.gather(*(run(number, *tenant) for number, tenant in enumerate(tenants)), *watches)
    await asyncio.gather(*under_way)
    return found


def drawn_last(records, seed, share):
    """Records in the order of their draws, so many that the cache's share of the data is full of them."""
    keys = Keys(records, seed * 1000 + 999)
    return [keys.draw() for _ in range(round(records * share * FILL_DRAWS))]


def run_setup(options, name, seed):
    setup = SETUPS[name]
    servers = []
    try:
        servers.append(node := Node(options, name, setup))
        node.wait_until_ready()
        looks_aside = name == "memcached"
        cache = node
        if looks_aside:
            memory_mib = round(options.records * VALUE_BYTES * CACHE_RATIO) >> 20
            port = free_port()
            cache = Server("memcached", "memcached", port, memcached_command(options.memcached, port, 1, memory_mib), None)
            servers.append(cache)
            cache.wait_until_ready()
        fill(cache.port, drawn_last(options.records, seed, CACHE_RATIO), Keys, deadlines=not looks_aside)
        node.limit(options.ops_per_s)
        clients = [LookAside(cache.port, node.port) if looks_aside else ReadThrough(node.port) for _ in range(options.clients)]
        record, hit_ratio = asyncio.run(closed_loop(options, clients, seed, node.looked_up))
        if looks_aside:
            hit_ratio = sum(one[2] == "hit" for one in record.requests) / max(len(record.requests), 1)
        return {**record.figures(), "hit_ratio": round(hit_ratio, 5), "multipliers": node.multipliers()}
    finally:
        for server in servers:
            server.stop()


def run_tenants(options, name, setup, seed):
    capacity = options.ops_per_s * REPLICAS
    bursting = lambda at: BURSTING_RATIO * capacity * (BURST if at % (2 * BURST_S) < BURST_S else 1)
    tenants = [("steady", lambda _at: STEADY_RATIO * capacity, STEADY_MS)]
    if name != "alone":
        tenants.append(("bursting", bursting, BURSTING_MS))
    node = Node(options, setup, SETUPS[setup], ("steady", "bursting"))
    try:
        node.wait_until_ready()
        for number, tenant in enumerate(("steady", "bursting")):
            node.fill_tenant(tenant, drawn_last(options.records, seed * 10 + number, CACHE_RATIO / 2))
        node.limit(options.ops_per_s)
        found = asyncio.run(open_loop(options, node.admin_port, tenants, seed))
        return {tenant: record.figures() for tenant, record in found.items()}
    finally:
        node.stop()


def prepare(options):
    """Fills the replicas' directories, unless that was done before with as many records."""
    options.data = os.path.abspath(options.data)
    done = os.path.join(options.data, f"filled-{options.records}")
    if os.path.exists(done):
        return
    print(f"microfuge: filling four stores of {options.records * VALUE_BYTES / 1e6:.0f} MB in {options.data}", file=sys.stderr)
    shutil.rmtree(options.data, ignore_errors=True)
    os.makedirs(options.data)
    first = os.path.join(options.data, "replica0")
    subprocess.run([options.fill, first, str(options.records), str(VALUE_BYTES)], check=True)
    for number in range(1, REPLICAS):
        shutil.copytree(first, os.path.join(options.data, f"replica{number}"))
    open(done, "w", encoding="ascii").close()


def rotated(some, number):
    first = number % len(some)
    return [*some[first:], *some[:first]]


def median(lines, field):
    values = [line[field] for line in lines if line[field] is not None]
    return statistics.median(values) if values else float("nan")


def setups(options, case, variants):
    """Measures variants, pairs of a label and a set-up with its parameters, and prints the table."""
    found = {label: [] for label, *_ in variants}
    for number in range(options.rounds):
        for label, name, parameters in rotated(variants, number):
            print(f"microfuge: {case}, round {number + 1} of {options.rounds}: {label}", file=sys.stderr)
            own = argparse.Namespace(**{**vars(options), **parameters})
            line = {"case": case, "setup": label, "round": number, "seed": options.seed + number, **run_setup(own, name, options.seed + number)}
            print(json.dumps(line), flush=True)
            found[label].append(line)
    first = variants[0][0]
    print(f"\n{case}: medians of {options.rounds} rounds; ratio of missed to that of {first}, in the same round", file=sys.stderr)
    head = f"  {'':<12}{'hit %':>7}{'missed %':>10}{'rejected %':>12}{'ratio':>8}{'p50 ms':>9}{'p99 ms':>9}{'req/s':>8}"
    print(head, file=sys.stderr)
    for label, lines in found.items():
        ratio = statistics.median(ours["missed_ratio"] / max(base["missed_ratio"], 1e-9) for ours, base in zip(lines, found[first]))
        print(
            f"  {label:<12}{100 * median(lines, 'hit_ratio'):>7.1f}{100 * median(lines, 'missed_ratio'):>10.2f}"
            f"{100 * median(lines, 'rejected_ratio'):>12.2f}{ratio:>8.3f}{median(lines, 'p50_ms'):>9.2f}{median(lines, 'p99_ms'):>9.1f}"
            f"{median(lines, 'requests_per_s'):>8.0f}{note(lines)}",
            file=sys.stderr,
        )


def isolation(options):
    found = {label: [] for label, _ in ISOLATION}
    for number in range(options.rounds):
        for label, name in rotated(ISOLATION, number):
            print(f"microfuge: isolation, round {number + 1} of {options.rounds}: {label}", file=sys.stderr)
            seed = options.seed + number
            for tenant, figures in run_tenants(options, label, name, seed).items():
                line = {"case": "isolation", "setup": label, "tenant": tenant, "round": number, "seed": seed, **figures}
                print(json.dumps(line), flush=True)
                found[label].append(line)
    print(f"\nisolation: medians of {options.rounds} rounds, in % of a tenant's requests", file=sys.stderr)
    print(f"  {'':<20}{'tenant':<10}{'missed':>9}{'rejected':>10}{'both':>8}{'p50 ms':>9}{'p99 ms':>9}{'req/s':>8}", file=sys.stderr)
    for label, lines in found.items():
        for tenant in ("steady", "bursting"):
            own = [line for line in lines if line["tenant"] == tenant]
            if not own:
                continue
            both = statistics.median(line["missed_ratio"] + line["rejected_ratio"] for line in own)
            print(
                f"  {label:<20}{tenant:<10}{100 * median(own, 'missed_ratio'):>9.2f}{100 * median(own, 'rejected_ratio'):>10.2f}"
                f"{100 * both:>8.2f}{median(own, 'p50_ms'):>9.2f}{median(own, 'p99_ms'):>9.1f}{median(own, 'requests_per_s'):>8.0f}{note(own)}",
                file=sys.stderr,
            )


def note(lines):
    late_ms, failed = median(lines, "client_late_p99_ms"), sum(line["failed"] for line in lines)
    return (f" (clients late: {late_ms:.1f} ms)" if late_ms > LATE_MS else "") + (f" FAILED {failed}" if failed else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    environment = os.environ.get
    cases = ["setups", "isolation", "alpha", "beta"]
    parser.add_argument("cases", nargs="*", choices=[*cases, []], help="which cases [default: setups isolation]")
    parser.add_argument("--sherwood", default=environment("SHERWOOD", "target/release/sherwood"), help="the binary")
    parser.add_argument("--memcached", default=environment("MEMCACHED", "memcached"))
    parser.add_argument("--fill", default="target/release/examples/fill", help="the example of crates/store")
    parser.add_argument("--data", default="target/microfuge", help="directory of the stores [default: %(default)s]")
    names = ["memcached", "dlc", "dlc+dls", "dlc+dls+ac"]
    parser.add_argument("--setups", type=lambda names: names.split(","), default=names, help=f"of these: {','.join(SETUPS)}")
    parser.add_argument("--rounds", type=int, default=int(environment("ROUNDS", "3")), help="[default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=15, help="measured in each run [default: %(default)s]")
    parser.add_argument("--warm-up", type=float, default=30, help="seconds of load before them [default: %(default)s]")
    parser.add_argument("--clients", type=int, default=24, help="of `setups` and the sweeps [default: %(default)s]")
    parser.add_argument("--ops-per-s", type=float, default=100, help="of each replica [default: %(default)s]")
    parser.add_argument("--records", type=int, default=100_000, help="of 1 KiB [default: %(default)s]")
    parser.add_argument("--eviction", default="s3-fifo", choices=["s3-fifo", "lru"], help="of Sherwood [default: %(default)s]")
    parser.add_argument("--alpha", type=float, default=15)
    parser.add_argument("--beta", type=float, default=88)
    parser.add_argument("--values", type=lambda values: [float(value) for value in values.split(",")], help="of a sweep")
    parser.add_argument("--seed", type=int, default=1, help="of the first round [default: %(default)s]")
    options = parser.parse_args()
    if unknown := [name for name in options.setups if name not in SETUPS]:
        parser.error(f"--setups: unknown {', '.join(unknown)}; there are {', '.join(SETUPS)}")
    if options.seconds <= 0 or options.warm_up < 0 or options.rounds < 1 or options.clients < 1 or options.records < 10_000:
        parser.error("--seconds is above 0, --warm-up at least 0, --rounds and --clients at least 1, --records at least 10000")
    prepare(options)
    gc.disable()
    for case in options.cases or ["setups", "isolation"]:
        if case == "isolation":
            isolation(options)
        elif case == "setups":
            setups(options, case, [(name, name, {}) for name in options.setups])
        else:
            values = options.values or ([5, 15, 30, 50] if case == "alpha" else [50, 70, 80, 88, 95])
            setups(options, case, [(f"{value:g}", "dlc+dls+ac", {case: value}) for value in values])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
