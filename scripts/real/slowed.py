#!/usr/bin/env python3
"""Compares RobinHood with a shared LRU while one of three real backends is slowed down.

The backends are MariaDB, PostgreSQL and an HTTP service. A node with a small cache is in front of
them, and `sherwood load` sends the requests of the orm-busy trace, ten keys each, at a constant
rate. After the warm-up, a control group limits one backend to a share of a core for a while. Each
policy receives the same requests; the policies alternate in going first.

A JSON line for each run goes to stdout: the share of the observations in the measured time above
the bound (P99 of the last ten seconds, observed every second), and the load's report. The summary
goes to stderr.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time

import shop

POLICIES = ("shared-lru", "robinhood")


def write_trace(path, requests):
    """The form that `sherwood load --format robinhood` reads."""
    with open(path, "w", encoding="ascii") as out:
        for queries in requests:
            layer = {backend: {"S": [shop.VALUE_BYTES] * len(keys), "U": keys, "C": [1] * len(keys)} for backend, keys in queries.items()}
            out.write(json.dumps({"t": 0, "d": [layer]}) + "\n")


def run(args, world, config, trace, name, policy):
    node, slowed = shop.Node(world.directory, name, config, policy).start(), world.servers[args.slowed]
    total_s = args.warmup_s + args.slow_s + args.after_s
    try:
        with shop.Watch(node) as watch:
            load = subprocess.Popen(
                [shop.SHERWOOD, "load", "--target", f"http://127.0.0.1:{node.port}", "--trace", trace, "--format", "robinhood",
                 "--rate", str(args.rate), "--duration", f"{total_s}s", "--json"], stdout=subprocess.PIPE)
            try:
                time.sleep(args.warmup_s)
                before = node.allocated_bytes()
                slowed.limit_cpu(args.ratio)
                time.sleep(args.slow_s)
                slowed.limit_cpu(None)
                report = json.loads(load.communicate()[0])
            finally:
                slowed.limit_cpu(None)
                if load.poll() is None:
                    load.kill()
                    load.wait()
        return {"policy": policy, **shop.observations(watch.after(args.warmup_s), args.bound_ms), "errors": report["errors"],
                "hit_ratio": report["hit_ratio"], "late_p99_us": report["late_p99_us"],
                "hit_ratios": {b: c["hits"] / (c["hits"] + c["misses"]) for b, c in report["by_partition"].items()},
                "bytes_before": before, "bytes_after": node.allocated_bytes()}
    finally:
        node.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policies", default=",".join(POLICIES), help="two of them, or one to choose the other flags by")
    parser.add_argument("--rate", type=float, default=250, help="requests per second, of ten keys each")
    parser.add_argument("--cache", default="4MiB")
    parser.add_argument("--bound-ms", type=int, default=100)
    parser.add_argument("--tax", type=float, default=0.03, help="share of its bytes that every partition gives in a step")
    parser.add_argument("--slowed", choices=shop.BACKENDS, default="mariadb")
    parser.add_argument("--ratio", type=float, default=0.16, help="share of a core that the slowed backend keeps")
    parser.add_argument("--warmup-s", type=int, default=70)
    parser.add_argument("--slow-s", type=int, default=80)
    parser.add_argument("--after-s", type=int, default=10)
    args = parser.parse_args()
    total_s = args.warmup_s + args.slow_s + args.after_s
    words, policies = shop.accesses(int(args.rate * shop.QUERIES * total_s * 1.2)), args.policies.split(",")
    with tempfile.TemporaryDirectory(prefix="sherwood-real-") as directory, shop.Shop(directory, words) as world:
        config, trace = world.configuration("node.toml", args.cache, args.bound_ms, f"tax = {args.tax}"), os.path.join(directory, "trace")
        write_trace(trace, shop.requests(words, world.places))
        results = shop.in_turn(args.rounds, policies, lambda name, policy: run(args, world, config, trace, name, policy))
    if len(policies) == 2:
        shop.summary(results, "policy", policies, ("violations", "p99_median_ms", "p99_max_ms", "hit_ratio"))


if __name__ == "__main__":
    main()
