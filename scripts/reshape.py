#!/usr/bin/env python3
"""Measures how fast a full cache shrinks, and latencies meanwhile, beside memcached, Redis and Valkey.

One server runs at a time, with one thread on SERVER_CORE; the load and this script run on
LOAD_CORE. The cache is filled with values of 1 KiB. An open load of gets (Zipf 0.99; misses are
set) runs while the memory is changed by each server's own means:

    sherwood   PUT /v1/partitions/NAME; reached when the bytes used are within the budget
    memcached  cache_memlimit, then one page after the other to the global pool
               (`slabs reassign CLASS 0`), as fast as the server allows;
               reached when the pages it holds are within the limit
    redis, valkey  CONFIG SET maxmemory; reached when used_memory, less the parts that eviction
               does not count, is within the limit

Cases: `shrink` gives up a tenth once per round, in a new server each time; the order of servers
changes with each round. `moves` gives up a tenth 20 times in one server, which each time takes it
back 2.5 s later and is filled up again, with keys that nothing asks for; hits while it is being
given up are compared with those of as many windows of the same lengths without a move, one after
each move. `churn` gives up a tenth and takes it back, with a move every 100 ms. `robinhood` moves a
hundredth, down or up, at the start of every other window of 5 s; hits of windows with a move are
compared with those of windows without.

Latencies count from the intended start of a get, and a hit belongs to the window of that start.
In `shrink` and `moves` the server is asked for its memory every 2 ms, with and without a change,
since the question itself takes processor time. A silence is the time between two consecutive hits.
JSON lines go to stdout, progress and medians to stderr. Needs the example `timeline` of crates/load.
"""

import argparse
import array
import bisect
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from peers import Server, add_binaries, free_port, memcached_command, redis_command

MIB = 1 << 20
VALUE_BYTES = 1024
KEY_BYTES = 20
# Number of keys, as a multiple of the budget at 1 KiB each: more than fit.
KEYS_RATIO = 1.15
# Seconds of load before the first change, and the part of them that counts.
LEAD_S, BEFORE_S = 5.0, 4.0
# Seconds of load after a single change, in which the memory has to be returned.
AFTER_S = 4.0
LOOK_S = 0.002
# Seconds from the beginning of a move until its memory is taken back, in which it has to be returned
# to the system; seconds from the filling up to a window without a move, and to the next move; and
# the time in which the server is filled up, at most.
HOLD_S, SETTLE_S, REFILL_S = 2.5, 1.0, 30.0
# Keys that are set at a time to fill up a server.
REFILL_KEYS = 5000
CHURN_INTERVAL_S = 0.1
ROBINHOOD_WINDOW_S = 5.0
# Share of its limit from which a cache counts as full.
FULL_RATIO = 0.95
# Share from which it counts as filled up.
REFILLED_RATIO = 0.985


class Resizable(Server):
    """A server whose memory can be changed."""

    def connect(self):
        self.control = socket.create_connection(("127.0.0.1", self.port), 10)
        self.control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.control.makefile("rb")

    def ask(self, command):
        self.control.sendall(command + b"\r\n")
        return self.answers.readline().strip()

    def fill(self, keys, first=0):
        """Sets every key from `first` on, the most popular one last."""
        value = b"v" * VALUE_BYTES
        for start in range(keys, first, -1000):
            numbers = range(start - 1, max(start - 1000, first) - 1, -1)
            self.control.sendall(b"".join(self.set_command(b"k%0*d" % (KEY_BYTES - 1, number), value) for number in numbers))
        self.filled()


class Sherwood(Resizable):
    def __init__(self, name, binary, memory_mib, core):
        port, self.admin_port = free_port(), free_port()
        command = [binary, "serve", "--memory", f"{memory_mib}MiB", "--memcached", f"127.0.0.1:{port}", "--threads", "1"]
        command += ["--admin", f"127.0.0.1:{self.admin_port}", "--policy", "static"]
        super().__init__(name, "memcached", port, command, core)

    def connect(self):
        super().connect()
        self.admin = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        self.partition = self.partitions()[0]["name"]

    def partitions(self):
        return self.request("GET", "/v1/partitions")

    def request(self, method, path, body=None):
        self.admin.request(method, path, body, {"content-type": "application/json"})
        answer = self.admin.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{method} {path}: {answer.status} {text!r}")
        return json.loads(text)

    def resize(self, limit):
        self.request("PUT", f"/v1/partitions/{self.partition}", json.dumps({"allocated_bytes": limit}))

    def held(self):
        return self.partitions()[0]["used_bytes"]

    def set_command(self, key, value):
        return b"set %b 0 0 %d noreply\r\n%b\r\n" % (key, len(value), value)

    def filled(self):
        self.ask(b"version")


class Memcached(Resizable):
    def __init__(self, name, binary, memory_mib, core):
        port = free_port()
        self.limit = None
        command = memcached_command(binary, port, 1, memory_mib)
        super().__init__(name, "memcached", port, command, core)

    set_command = Sherwood.set_command
    filled = Sherwood.filled

    def slabs(self):
        self.control.sendall(b"stats slabs\r\n")
        stats = {}
        while (line := self.answers.readline()) != b"END\r\n":
            _, name, value = line.split()
            stats[name.decode()] = value
        return stats

    def resize(self, limit):
        self.limit = limit
        answer = self.ask(b"cache_memlimit %d" % (limit // MIB))
        if answer != b"OK":
            raise SystemExit(f"memcached answered {answer!r} to cache_memlimit")

    def held(self):
        stats = self.slabs()
        held = int(stats["total_malloced"])
        if self.limit and held > self.limit // MIB * MIB:
            pages = {name.split(":")[0]: int(value) for name, value in stats.items() if name.endswith(":total_pages")}
            # The server is busy while it moves a page.
            self.ask(b"slabs reassign %b 0" % max(pages, key=pages.get).encode())
        return held


class Redis(Resizable):
    def __init__(self, name, binary, memory_mib, core):
        port = free_port()
        command = redis_command(binary, port, 1, memory_mib)
        super().__init__(name, "redis", port, command, core)

    def set_command(self, key, value):
        return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(value), value)

    def fill(self, keys, first=0):
        self.control.sendall(b"CLIENT REPLY OFF\r\n")
        super().fill(keys, first)

    def filled(self):
        if self.ask(b"CLIENT REPLY ON") != b"+OK":
            raise SystemExit(f"{self.name} did not take the values")

    def resize(self, limit):
        answer = self.ask(b"CONFIG SET maxmemory %d" % limit)
        if answer != b"+OK":
            raise SystemExit(f"{self.name} answered {answer!r} to CONFIG SET")

    def held(self):
        self.control.sendall(b"INFO memory\r\n")
        text = self.answers.read(int(self.answers.readline()[1:]) + 2).decode()
        info = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
        return int(info["used_memory"]) - int(info["mem_not_counted_for_evict"])


class Load:
    """The open load and the latencies of its hits."""

    def __init__(self, options, server, seconds, keys):
        self.out = tempfile.NamedTemporaryFile()
        command = ["taskset", "-c", options.load_core, options.timeline, server.target(), str(options.rate), str(seconds), str(keys)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([*command, self.out.name], **pipes)
        # The load's clock is read with the fastest of several requests.
        asked = [self.ask_time() for _ in range(20)]
        _, self.origin = min(asked)

    def ask_time(self):
        before = time.monotonic()
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        told = self.process.stdout.readline()
        after = time.monotonic()
        if not told:
            raise SystemExit("the load ended at once")
        return after - before, (before + after) / 2 - int(told) / 1e9

    def now(self):
        return time.monotonic() - self.origin

    def wait_until(self, at):
        time.sleep(max(0.0, at - self.now()))

    def end(self, at_once=False):
        """Waits for the end and returns the report."""
        if at_once:
            self.process.stdin.write(b"end\n")
            self.process.stdin.flush()
        output, _ = self.process.communicate()
        if self.process.returncode != 0:
            raise SystemExit("the load failed")
        pairs = array.array("Q")
        pairs.frombytes(self.out.read())
        self.ends = pairs[0::2]
        self.latencies = pairs[1::2]
        self.starts = sorted((end - latency, latency) for end, latency in zip(self.ends, self.latencies))
        return json.loads(output)

    def hits(self, start, end):
        """Latencies in µs of the hits that were meant to start in a window, sorted."""
        first, last = (bisect.bisect_left(self.starts, (round(at * 1e9), 0)) for at in (start, end))
        return sorted(latency / 1e3 for _, latency in self.starts[first:last])

    def silence_ms(self, start, end):
        """The longest time between two hits, of those that ended in a window and the one before."""
        first, last = (bisect.bisect_left(self.ends, round(at * 1e9)) for at in (start, end))
        gaps = (self.ends[at] - self.ends[at - 1] for at in range(max(first, 1), min(last + 1, len(self.ends))))
        return round(max(gaps, default=0) / 1e6, 3)


def percentile(ordered, percent):
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))], 1) if ordered else None


def felt(load, name, start, end):
    hits = load.hits(start, end)
    return {
        f"{name}_hits": len(hits),
        f"{name}_p50_us": percentile(hits, 50),
        f"{name}_p99_us": percentile(hits, 99),
        f"{name}_silence_ms": load.silence_ms(start, end),
    }


def start(options, kind, seconds):
    """A full server, and a load on it that has just begun."""
    name, make, binary = kind
    server = make(name, binary, options.memory_mib, options.server_core)
    try:
        server.wait_until_ready()
        server.connect()
        keys = int(KEYS_RATIO * options.memory_mib * MIB / VALUE_BYTES)
        server.fill(keys)
        if server.held() < FULL_RATIO * options.memory_mib * MIB:
            raise SystemExit(f"{name} holds {server.held() // MIB} MiB of {options.memory_mib}: it has to be full")
        return server, Load(options, server, seconds, keys)
    except BaseException:
        server.stop()
        raise


def shrink(options, kind, number):
    total = options.memory_mib * MIB
    limit = total // 10 * 9
    server, load = start(options, kind, LEAD_S + AFTER_S)
    try:
        load.wait_until(LEAD_S - BEFORE_S)
        while load.now() < LEAD_S:
            server.held()
            time.sleep(LOOK_S)
        resident, cpu_s = [(load.now(), server.resident_bytes())], server.cpu_s()
        began, reached = load.now(), None
        server.resize(limit)
        asked = load.now()
        while load.now() < LEAD_S + AFTER_S - 0.5:
            if reached is None and server.held() <= limit:
                reached, cpu_s = load.now(), server.cpu_s() - cpu_s
            resident.append((load.now(), server.resident_bytes()))
            time.sleep(LOOK_S)
        report = load.end()
    finally:
        server.stop()
    fall = resident[0][1] - min(size for _, size in resident)
    back = next(at for at, size in resident if resident[0][1] - size >= 0.95 * fall)
    until = reached or LEAD_S + AFTER_S
    ms = lambda at: round((at - began) * 1e3, 1) if at else None
    line = {"case": "shrink", "server": kind[0], "round": number, "asked_ms": ms(asked), "reached_ms": ms(reached)}
    line |= {"memory_back_ms": ms(back) if fall > total // 100 else None, "memory_back_mib": fall // MIB}
    line |= {"cpu_ms_until_reached": round(cpu_s * 1e3, 1) if reached else None}
    line |= felt(load, "before", began - BEFORE_S, began) | felt(load, "during", began, until)
    line |= felt(load, "behind", until, max(back, until) + 0.01)
    return finish(line, report)


def fill_up(server, keys, limit):
    """Sets keys that the load does not ask for, from the number `keys` on, until the server is full
    again; returns the next one."""
    last = keys + limit // VALUE_BYTES
    while server.held() < REFILLED_RATIO * limit:
        if keys >= last:
            raise SystemExit(f"{server.name} holds {server.held() // MIB} MiB of {limit // MIB}: it has to be full")
        server.fill(keys + REFILL_KEYS, keys)
        keys += REFILL_KEYS
    return keys


def watch(server, load, until, limit=0):
    """Asks for the memory until a time, or until it is within the limit; then returns the time."""
    while load.now() < until:
        if server.held() <= limit:
            return load.now()
        time.sleep(LOOK_S)
    return None


def moves(options, kind, number):
    total = options.memory_mib * MIB
    less = total // 10 * 9
    keys = int(KEYS_RATIO * options.memory_mib * MIB / VALUE_BYTES)
    seconds = LEAD_S + options.moves * (2 * HOLD_S + 2 * SETTLE_S + REFILL_S)
    server, load = start(options, kind, seconds)
    windows = {"before": [], "during": [], "behind": []}
    reached_ms, cpu_ms = [], []
    try:
        load.wait_until(LEAD_S)
        for _ in range(options.moves):
            keys = fill_up(server, keys, total)
            load.wait_until(load.now() + SETTLE_S)
            began, cpu_s = load.now(), server.cpu_s()
            server.resize(less)
            reached = watch(server, load, began + HOLD_S, less)
            reached_ms.append(round((reached - began) * 1e3, 1) if reached else None)
            cpu_ms.append(round((server.cpu_s() - cpu_s) * 1e3, 1))
            until = reached or began + HOLD_S
            watch(server, load, began + HOLD_S)
            windows["during"].append((began, until))
            windows["behind"].append((until, load.now()))
            server.resize(total)
            keys = fill_up(server, keys, total)
            load.wait_until(load.now() + SETTLE_S)
            quiet = load.now()
            watch(server, load, quiet + until - began)
            windows["before"].append((quiet, quiet + until - began))
        if load.now() > seconds:
            raise SystemExit(f"{kind[0]} takes longer to be filled up than the load runs")
        report = load.end(at_once=True)
    finally:
        server.stop()
    done = [ms for ms in reached_ms if ms is not None]
    line = {"case": "moves", "server": kind[0], "round": number, "moves": options.moves, "reached": len(done)}
    line |= {"reached_ms": statistics.median(done) if done else None, "reached_max_ms": max(done, default=None)}
    line |= {"all_reached_ms": reached_ms, "cpu_ms_until_reached": statistics.median(cpu_ms)}
    for name, spans in windows.items():
        hits = sorted(hit for span in spans for hit in load.hits(*span))
        line |= {f"{name}_hits": len(hits), f"{name}_p50_us": percentile(hits, 50), f"{name}_p99_us": percentile(hits, 99)}
        silences = [load.silence_ms(*span) for span in spans]
        line |= {f"{name}_silence_ms": max(silences), f"{name}_silence_median_ms": statistics.median(silences)}
        each = [percentile(load.hits(*span), 99) for span in spans]
        line |= {f"{name}_window_p99_us": statistics.median(p99 for p99 in each if p99 is not None)}
    return finish(line, report)


def churn(options, kind, number):
    seconds = options.churn_s if kind[1] is Sherwood else min(options.churn_s, options.churn_peers_s)
    total = options.memory_mib * MIB
    server, load = start(options, kind, LEAD_S + seconds + 0.5)
    moves = reached = 0
    try:
        load.wait_until(LEAD_S)
        began, resident = load.now(), server.resident_bytes()
        most = resident
        while load.now() < began + seconds:
            limit = total // 10 * (10 if moves % 2 else 9)
            moves += 1
            server.resize(limit)
            while (held := server.held()) > limit and load.now() < began + moves * CHURN_INTERVAL_S:
                time.sleep(LOOK_S)
            reached += held <= limit
            most = max(most, server.resident_bytes())
            load.wait_until(began + moves * CHURN_INTERVAL_S)
        ended = load.now()
        report = load.end()
    finally:
        server.stop()
    line = {"case": "churn", "server": kind[0], "round": number, "moves": moves, "reached": reached}
    line |= {"resident_growth_mib": (most - resident) // MIB}
    line |= felt(load, "before", began - BEFORE_S, began) | felt(load, "during", began, ended)
    return finish(line, report)


def robinhood(options, kind, number):
    total = options.memory_mib * MIB
    count = 2 * options.robinhood_windows
    server, load = start(options, kind, LEAD_S + count * ROBINHOOD_WINDOW_S + 0.5)
    limits, windows = [total // 100 * 99, total], []
    try:
        for window in range(count):
            at = LEAD_S + window * ROBINHOOD_WINDOW_S
            load.wait_until(at)
            moves = window % 2 == number % 2
            if moves:
                server.resize(limits[window // 2 % 2])
                while server.held() > limits[window // 2 % 2] and load.now() < at + ROBINHOOD_WINDOW_S:
                    time.sleep(LOOK_S)
            windows.append((moves, at))
        report = load.end()
    finally:
        server.stop()
    line = {"case": "robinhood", "server": kind[0], "round": number, "windows": count}
    for name, wanted in (("before", False), ("during", True)):
        seen = [load.hits(at, at + ROBINHOOD_WINDOW_S) for moves, at in windows if moves == wanted]
        together = sorted(hit for hits in seen for hit in hits)
        line |= {f"{name}_hits": len(together), f"{name}_p50_us": percentile(together, 50)}
        line |= {f"{name}_p99_us": percentile(together, 99)}
        line |= {f"{name}_window_p99_us": statistics.median(percentile(hits, 99) for hits in seen)}
    return finish(line, report)


def finish(line, report):
    before, during = line["before_p99_us"], line["during_p99_us"]
    line["p99_ratio"] = round(during / before, 3) if before and during else None
    line |= {"hit_ratio": round(report["hit_ratio"], 4), "errors": report["errors"], "late_p99_us": report["late_p99_us"]}
    print(json.dumps(line), flush=True)
    return line


SHOWN = {
    "shrink": ["reached_ms", "memory_back_ms", "memory_back_mib", "cpu_ms_until_reached", "p99_ratio", "before_p99_us", "during_p99_us",
               "behind_p99_us", "before_silence_ms", "during_silence_ms", "behind_silence_ms"],
    "moves": ["moves", "reached", "reached_ms", "reached_max_ms", "cpu_ms_until_reached", "p99_ratio", "before_p99_us", "during_p99_us",
              "behind_p99_us", "before_window_p99_us", "during_window_p99_us", "before_silence_ms", "during_silence_ms", "behind_silence_ms"],
    "churn": ["moves", "reached", "resident_growth_mib", "p99_ratio", "before_p99_us", "during_p99_us", "before_silence_ms", "during_silence_ms"],
    "robinhood": ["windows", "p99_ratio", "before_p99_us", "during_p99_us", "before_window_p99_us", "during_window_p99_us"],
}


def summary(case, found):
    print(f"\n{case}, medians", file=sys.stderr)
    width = max(len(field) for field in SHOWN[case])
    print(f"  {'':<{width}}" + "".join(f"{name:>12}" for name in found), file=sys.stderr)
    for field in SHOWN[case]:
        medians = []
        for lines in found.values():
            values = [line[field] for line in lines if line[field] is not None]
            medians.append(f"{statistics.median(values):>12.5g}" if values else f"{'never':>12}")
        print(f"  {field:<{width}}" + "".join(medians), file=sys.stderr)


def kinds(options):
    all_kinds = [("sherwood", Sherwood, options.sherwood), ("memcached", Memcached, options.memcached)]
    all_kinds += [("redis", Redis, options.redis), ("valkey", Redis, options.valkey)]
    if options.other:
        all_kinds.insert(1, ("other", Sherwood, options.other))
    chosen = [kind for kind in all_kinds if not options.servers or kind[0] in options.servers.split(",")]
    for name, _, binary in chosen:
        if not shutil.which(binary):
            print(f"reshape: without {name}: there is no `{binary}`", file=sys.stderr)
    return [kind for kind in chosen if shutil.which(kind[2])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    environment = os.environ.get
    cases = {"shrink": shrink, "moves": moves, "churn": churn, "robinhood": robinhood}
    parser.add_argument("cases", nargs="*", choices=[*cases, []], help="which cases [default: all]")
    add_binaries(parser)
    parser.set_defaults(memory_mib=2048)
    parser.add_argument("--timeline", default="target/release/examples/timeline", help="the load")
    parser.add_argument("--servers", default=None, help="only these: sherwood,other,memcached,redis,valkey")
    parser.add_argument("--rounds", type=int, default=int(environment("ROUNDS", "5")), help="of `shrink` and `moves`")
    parser.add_argument("--moves", type=int, default=20, help="number of times that a tenth is given up in a round of `moves`")
    parser.add_argument("--rate", type=int, default=30_000, help="gets a second")
    parser.add_argument("--churn-s", type=float, default=60)
    parser.add_argument("--churn-peers-s", type=float, default=15, help="the same for the peers")
    parser.add_argument("--robinhood-windows", type=int, default=8, help="windows with a move, and as many without")
    parser.add_argument("--server-core", default=environment("SERVER_CORE", "0"))
    parser.add_argument("--load-core", default=environment("LOAD_CORE", "1"))
    options = parser.parse_args()
    os.sched_setaffinity(0, {int(options.load_core)})
    for case in options.cases or cases:
        # Small moves, and many, are those of a control loop, which only one of these servers has.
        is_own = case in ("moves", "robinhood")
        taking_part = [kind for kind in kinds(options) if not is_own or kind[1] is Sherwood or options.servers]
        found = {name: [] for name, _, _ in taking_part}
        for number in range(options.rounds if case in ("shrink", "moves") else 1):
            first = number % max(len(taking_part), 1)
            for kind in taking_part[first:] + taking_part[:first]:
                print(f"{case}: {kind[0]}, round {number + 1}", file=sys.stderr)
                found[kind[0]].append(cases[case](options, kind, number))
        summary(case, found)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
