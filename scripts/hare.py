#!/usr/bin/env python3
"""Measures policies between tenants live: throughput of each tenant beside its baseline.

A node with a synthetic store (every answer after 5 ms) divides cache, reads, writes and network
among tenants. `sherwood load --scenario` sends the tenants' loads in a closed loop, each logged in
as its own user; listeners write through. The loads are those of HARE's evaluation (FAST 2026; see
docs/src/reproduction-hare.md) with 1/16 of keys and cache. Rates are kept where the two cores
suffice, else all are divided alike: see --rates.

Cases:

    working-set-4    T1 4 million keys, T2 6 million, uniform, 5% writes (all counts before scaling)
    working-set-16   the same with 16 million keys of T1
    skew-0           T1 12 million keys, uniform; T2 6 million, Zipf 0.99; 5% writes
    dynamic          four tenants (YCSB A, B, C and scans) whose loads change in turn
    tenants16        sixteen tenants: four mixes, each twice with 6 and twice with 12 million keys (the
                     evaluation has values of 2,000 bytes as well, and the synthetic store one size)

Every round runs each policy of a case once, in another order, after the caches are filled and
--warm-up seconds of load, in which the policy decides. `normalized` is a tenant's throughput beside
that under `baseline` in the same round, `normalized_min` the least of the same 10 s of both.
Scenarios are written
to --data, for `sherwood sim run --scenario FILE`.

JSON lines go to stdout, progress and tables to stderr.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile

from peers import Server, free_port

MILLION = 1_000_000
READS, WRITES, NETWORK = 1_000, 1_000, 50 << 20
CACHE = 2 << 30
POLICIES = ("baseline", "drf", "memshare", "non-partitioned", "hare-published", "hare")
PASSWORD = "a password of a benchmark"
INTERVAL_S = 10
# Of every value that is set or made by the store.
VALUE_BYTES = 500
# Bytes of an item beside its key and value, about.
ITEM_OVERHEAD = 40


def tenant(name, millions, **load):
    load = {"backend": "db", "keys": millions * MILLION, "value_bytes": VALUE_BYTES, **load}
    return {"name": name, "clients": {"processes": 16, "depth": 2}, "cache": CACHE, "loads": [load]}


def working_set(millions):
    return [tenant("T1", millions, write_ratio=0.05), tenant("T2", 6, write_ratio=0.05)]


def skew(theta):
    return [tenant("T1", 12, zipf=theta, write_ratio=0.05), tenant("T2", 6, zipf=0.99, write_ratio=0.05)]


def dynamic(seconds):
    """Each tenant changes at a fifth of the time, one after the other, and changes back at four fifths."""
    mixes = [
        ({"write_ratio": 0.5}, {"write_ratio": 0.3}),
        ({"write_ratio": 0.05}, {"keys": 12 * MILLION}),
        ({}, {"zipf": 0.6}),
        ({"write_ratio": 0.05, "scan_max": 100}, {"scan_max": 40}),
    ]
    tenants = []
    for number, (start, change) in enumerate(mixes):
        own = tenant(f"T{number + 1}", 6, zipf=0.99, **start)
        own["clients"]["depth"] = 4
        back = {key: own["loads"][0][key] for key in change}
        at = (0.2 + 0.05 * number) * seconds
        own["loads"][0]["changes"] = [{"at": f"{at:.0f}s", **change}, {"at": f"{at + 0.5 * seconds:.0f}s", **back}]
        tenants.append(own)
    return tenants


def tenants16():
    mixes = [{"write_ratio": 0.5}, {"write_ratio": 0.05}, {}, {"write_ratio": 0.05, "scan_max": 100}]
    pairs = [(mix, millions) for mix in mixes for millions in (6, 6, 12, 12)]
    return [tenant(f"T{number}", millions, zipf=0.99, **mix) for number, (mix, millions) in enumerate(pairs, 1)]


CASES = {
    "working-set-4": lambda options: working_set(4),
    "working-set-16": lambda options: working_set(16),
    "skew-0": lambda options: skew(0),
    "dynamic": lambda options: dynamic(options.seconds),
    "tenants16": lambda options: tenants16(),
}


def scenario(options, case):
    """The scenario of a case as a document, scaled."""
    tenants = CASES[case](options)
    for own in tenants:
        own["cache"] = round(own["cache"] * options.scale)
        own["rates"] = {
            "reads": READS * options.rates,
            "writes": WRITES * options.rates,
            "network": NETWORK * options.rates,
        }
        load = own["loads"][0]
        for part in [load, *load.get("changes", [])]:
            if "keys" in part:
                part["keys"] = round(part["keys"] * options.scale)
    resources = [
        {"name": "reads", "kind": "reads", "backend": "db"},
        {"name": "writes", "kind": "writes", "backend": "db"},
        {"name": "network", "kind": "network"},
    ]
    return {
        "name": case,
        "warm_up": f"{options.warm_up}s",
        "measure": f"{options.seconds}s",
        "control": {"decide": "live", "period": "20s", "window": "60s", "salt": 0.01, "apply_over": options.apply_over},
        "backends": [{"name": "db", "latency": "5ms"}],
        "resources": resources,
        "tenants": tenants,
    }


class Node(Server):
    """A node with the tenants of a document, divided by a policy."""

    # The backend's `store`.
    STORE = f'{{ kind = "synthetic", bytes = "{VALUE_BYTES}B", latency = "5ms" }}'

    def __init__(self, options, document, policy):
        self.scratch = tempfile.TemporaryDirectory()
        self.tenants = document["tenants"]
        self.admin_port, self.fill_port, port = free_port(), free_port(), free_port()
        self.users = os.path.join(self.scratch.name, "users")
        with open(os.open(self.users, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.writelines(f"{own['name']}:{PASSWORD}\n" for own in self.tenants)
        control = document["control"]
        count = len(self.tenants)
        lines = ["[memory]", f"total = {sum(own['cache'] for own in self.tenants)}", f'eviction = "{options.eviction}"']
        lines += ["[control]", 'policy = "static"', "[admin]", f'bind = "127.0.0.1:{self.admin_port}"']
        lines += ["[tenants]", f'policy = "{policy}"', *(f"{key} = {json.dumps(control[key])}" for key in ("period", "window", "salt", "apply_over"))]
        lines.append(f"lend = {json.dumps(options.lend)}")
        for own in self.tenants:
            lines += ["[[tenant]]", f'name = "{own["name"]}"', f'users = ["{own["name"]}"]']
        for resource in document["resources"]:
            total = sum(own["rates"][resource["name"]] for own in self.tenants)
            lines += ["[[resource]]", *(f"{key} = {json.dumps(value)}" for key, value in resource.items()), f"total = {round(total)}"]
        for number, mode in ((port, "write-through"), (self.fill_port, "look-aside")):
            lines += ["[[listener]]", f'bind = "127.0.0.1:{number}"', 'protocol = "redis"', f'mode = "{mode}"', 'backend = "db"']
            lines.append(f"auth_file = {json.dumps(self.users)}")
        calls = count * 16 * 4 * 2
        # A closed loop waits for its turn as long as it takes, as in the simulator.
        lines += ["[[backend]]", 'name = "db"', 'timeout = "60s"', f"store = {self.STORE}"]
        lines.append(f"dispatch = {{ batch_keys_max = 1, in_flight_calls_max = {calls}, queued_calls_max = {calls}, waiters_max = {16 * calls} }}")
        path = os.path.join(self.scratch.name, "node.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        super().__init__("sherwood", "redis", port, [options.sherwood, "serve", "--config", path], options.node_core)

    def fill(self):
        """Sets as many of each tenant's keys as its part of the cache holds, the most popular last."""
        for number, own in enumerate(self.tenants):
            load = own["loads"][0]
            item = 16 + load["value_bytes"] + ITEM_OVERHEAD
            ranks = range(min(load["keys"], own["cache"] // item) - 1, -1, -1)
            value = b"v" * load["value_bytes"]
            with socket.create_connection(("127.0.0.1", self.fill_port), 60) as connection:
                answers = connection.makefile("rb")
                send(connection, b"AUTH", own["name"].encode(), PASSWORD.encode())
                expect(answers, 1)
                for at in range(0, len(ranks), 500):
                    batch = ranks[at : at + 500]
                    connection.sendall(b"".join(command(b"SET", key(number, rank), value) for rank in batch))
                    expect(answers, len(batch))

    def get(self, path):
        """Asks the admin API."""
        admin = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=60)
        admin.request("GET", path)
        answer = admin.getresponse()
        text = answer.read()
        admin.close()
        if answer.status != 200:
            raise SystemExit(f"GET {path}: {answer.status} {text!r}")
        return text

    def status(self):
        return json.loads(self.get("/v1/tenants"))

    def stop(self):
        super().stop()
        self.scratch.cleanup()


def key(number, rank):
    """The key of a rank of the tenant with this number, as `sherwood load --scenario` writes it."""
    digits = b"0123456789abcdefghijklmnopqrstuv"
    return b"t%c%c%013d" % (digits[number // 32], digits[number % 32], rank)


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def send(connection, *words):
    connection.sendall(command(*words))


def expect(answers, count):
    for _ in range(count):
        if (line := answers.readline()) != b"+OK\r\n":
            raise SystemExit(f"filling the cache: {line!r}")


def measure(options, case, policy, seed):
    """Runs a case under a policy; returns the report of the load and the state of the node."""
    document = scenario(options, case)
    os.makedirs(options.data, exist_ok=True)
    file = os.path.join(options.data, f"{case}.json")
    with open(file, "w", encoding="utf-8") as out:
        json.dump(document, out, indent=1)
    node = options.node(options, document, policy)
    try:
        node.wait_until_ready()
        node.fill()
        load = [options.sherwood, "load", "--target", node.target(), "--scenario", file, "--passwords", node.users]
        load += ["--interval", f"{INTERVAL_S}s", "--seed", str(seed), "--json"]
        pin = ["taskset", "-c", options.load_core] if options.load_core else []
        before = node.cpu_s()
        done = subprocess.run(pin + load, stdout=subprocess.PIPE, check=True)
        report, cpu_s = json.loads(done.stdout), node.cpu_s() - before
        return report, node.status(), cpu_s
    finally:
        node.stop()


def line_of(case, policy, number, own, base, cpu_s):
    """Figures of one tenant, beside the same under `baseline`."""
    throughput = own["throughput"]
    parts = [part / max(beside, 1e-9) for part, beside in zip(own["throughput_by_interval"], base["throughput_by_interval"])]
    return {
        "case": case,
        "policy": policy,
        "round": number,
        "tenant": own["name"],
        "throughput": round(throughput, 1),
        "normalized": round(throughput / base["throughput"], 4),
        "normalized_min": round(min(parts), 4),
        "normalized_max": round(max(parts), 4),
        "p999_ms": round(own["latency_us"]["p99_9"] / 1e3, 2),
        "errors": own["errors"],
        "cpu_s": round(cpu_s, 1),
    }


def run_case(options, case):
    policies = ["baseline", *(policy for policy in options.policies if policy != "baseline")]
    found = []
    for number in range(options.rounds):
        first = (options.seed - 1 + number) % len(policies)
        reports = {}
        for policy in [*policies[first:], *policies[:first]]:
            print(f"hare: {case}, round {number + 1} of {options.rounds}: {policy}", file=sys.stderr)
            report, status, cpu_s = measure(options, case, policy, options.seed + number)
            reports[policy] = report["tenants"], cpu_s
            print(json.dumps({"case": case, "policy": policy, "round": number, "status": status}), flush=True)
        base = reports["baseline"][0]
        for policy in policies:
            tenants, cpu_s = reports[policy]
            for own, beside in zip(tenants, base):
                found.append(line_of(case, policy, number, own, beside, cpu_s))
                print(json.dumps(found[-1]), flush=True)
    show(options, case, policies, found)


def show(options, case, policies, found):
    print(f"\n{case}: medians of {options.rounds} rounds, beside baseline in the same round", file=sys.stderr)
    print(f"  {'policy':<17}{'tenant':<8}{'requests/s':>11}{'normalized':>12}{'least 10 s':>12}{'most 10 s':>11}{'P99.9 ms':>10}", file=sys.stderr)
    for policy in policies:
        for name in dict.fromkeys(line["tenant"] for line in found):
            lines = [line for line in found if (line["policy"], line["tenant"]) == (policy, name)]
            of = lambda field: statistics.median(line[field] for line in lines)  # noqa: E731
            errors = sum(line["errors"] for line in lines)
            print(
                f"  {policy:<17}{name:<8}{of('throughput'):>11.0f}{of('normalized'):>12.3f}{of('normalized_min'):>12.3f}"
                f"{of('normalized_max'):>11.3f}{of('p999_ms'):>10.1f}" + (f" FAILED {errors}" if errors else ""),
                file=sys.stderr,
            )


def names(known):
    def parse(text):
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; there are {', '.join(known)}")
        return chosen

    return parse


EXAMPLES = """examples:
  make bench-hare                                         working-set-4, working-set-16 and skew-0
  make bench-hare ARGS="dynamic --seconds 600 --rounds 1"
  make bench-hare ARGS="tenants16 --rates 0.25 --policies drf,hare"
"""


def arguments(description, examples, cases):
    """Returns a parser of the options of a measurement, which is of `cases` by default."""
    parser = argparse.ArgumentParser(description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help=f"which cases [default: {' '.join(cases)}]")
    parser.add_argument("--sherwood", default=os.environ.get("SHERWOOD", "target/release/sherwood"), help="the binary")
    parser.add_argument("--data", default="target/hare", help="directory of the scenarios [default: %(default)s]")
    parser.add_argument("--policies", type=names(POLICIES), default=["drf", "hare"], help=f"of these, beside baseline: {','.join(POLICIES)} [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "5")), help="[default: %(default)s]")
    parser.add_argument("--warm-up", type=int, default=150, help="seconds of load before the measurement [default: %(default)s]")
    parser.add_argument("--seconds", type=int, default=60, help="measured in each run [default: %(default)s]")
    parser.add_argument("--scale", type=float, default=1 / 16, help="of keys and cache [default: %(default)s]")
    parser.add_argument("--rates", type=float, default=1, help="factor of all rates [default: %(default)s]")
    parser.add_argument("--apply-over", type=float, default=0, help="least predicted gain of a new division [default: %(default)s]")
    parser.add_argument("--lend", action="store_true", help="lend idle units; without it rates are hard limits, as in the paper")
    parser.add_argument("--eviction", default="s3-fifo", choices=["s3-fifo", "lru"], help="[default: %(default)s]")
    parser.add_argument("--node-core", default="0", help="core of the node [default: %(default)s]")
    parser.add_argument("--load-core", default="1", help="core of the load [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="of the first round [default: %(default)s]")
    parser.set_defaults(node=Node, default_cases=cases)
    return parser


def run(parser):
    """Parses the options and measures the cases that they name."""
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds < INTERVAL_S or options.warm_up < 1:
        parser.error(f"--rounds and --warm-up are at least 1, --seconds at least {INTERVAL_S}")
    if not 0 < options.scale <= 1 or not options.rates > 0:
        parser.error("--scale is above 0 and at most 1, --rates above 0")
    for case in options.cases or options.default_cases:
        run_case(options, case)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run(arguments(__doc__, EXAMPLES, ["working-set-4", "working-set-16", "skew-0"]))
