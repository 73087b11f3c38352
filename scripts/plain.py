#!/usr/bin/env python3
"""Measures a node with an unmodified client of Redis as its only user, under two policies in turn.

    scripts/plain.py [--rounds 3] [--warm-up 40] [--seconds 30] [--node target/release/sherwood]

An application reads values of three kinds through redis-py, four in ten of `a/`, four of `b/` and
two of `slow/`. What the cache does not have it computes, which takes 2 ms, or 30 ms for `slow/`,
and stores. Keys are drawn evenly; the cache has 8 MiB, the values of `slow/` have 4 MiB, and those
of the others 20 MiB each. Printed are the latencies that the application sees: the 99th percentile,
and the share of reads above 20 ms.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time

KINDS = {"a": (4, 20_000, 0.002), "b": (4, 20_000, 0.002), "slow": (2, 4_000, 0.030)}
VALUE = b"v" * 1_000
BOUND_S = 0.020
CLIENTS = 8
CONFIGURATION = """
[memory]
total = "8MiB"

[slo]
bound = "20ms"
window = "10s"
observe = "1s"

[control]
policy = "{policy}"
delta = "500ms"
rbc_window = "10s"

[[listener]]
protocol = "redis"
bind = "unix:{socket}"
route = "prefix"
""" + "".join(f'\n[[backend]]\nname = "{name}"\nprefix = "{name}/"\n' for name in KINDS)


def client(socket, seed, measured, ends, results):
    """Reads until `ends`, and puts the latencies of reads that began after `measured` into `results`."""
    import redis

    connection = redis.Redis(unix_socket_path=socket)
    draw = random.Random(seed)
    weights = [weight for weight, _, _ in KINDS.values()]
    latencies = []
    while True:
        (name,) = draw.choices(list(KINDS), weights)
        _, keys, seconds = KINDS[name]
        key = f"{name}/{draw.randrange(keys)}"
        began = time.monotonic()
        if began >= ends:
            break
        if connection.get(key) is None:
            time.sleep(seconds)
            connection.set(key, VALUE)
        if began >= measured:
            latencies.append(time.monotonic() - began)
    results.put(latencies)


def run(node, policy, seed, warm_up, seconds):
    """Returns P99 in milliseconds and the share of reads above the bound."""
    with tempfile.TemporaryDirectory() as directory:
        socket = os.path.join(directory, "node.sock")
        configuration = os.path.join(directory, "node.toml")
        with open(configuration, "w") as file:
            file.write(CONFIGURATION.format(policy=policy, socket=socket))
        command = [node, "serve", "--config", configuration, "--admin", "off"]
        served = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in served.stderr:
            if line.startswith("ready"):
                break
        measured = time.monotonic() + warm_up
        results = multiprocessing.Queue()
        arguments = [(socket, seed * CLIENTS + index, measured, measured + seconds, results) for index in range(CLIENTS)]
        clients = [multiprocessing.Process(target=client, args=of) for of in arguments]
        for one in clients:
            one.start()
        latencies = sorted(latency for _ in clients for latency in results.get())
        for one in clients:
            one.join()
        served.send_signal(signal.SIGTERM)
        served.communicate()
    above = sum(latency > BOUND_S for latency in latencies) / len(latencies)
    return 1000 * latencies[int(0.99 * len(latencies))], above, len(latencies)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=float, default=40)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--node", default="target/release/sherwood")
    parser.add_argument("--policies", default="shared-lru,robinhood")
    asked = parser.parse_args()
    measured = {policy: [] for policy in asked.policies.split(",")}
    for seed in range(1, asked.rounds + 1):
        for policy, results in measured.items():
            p99, above, reads = run(asked.node, policy, seed, asked.warm_up, asked.seconds)
            results.append((p99, above))
            print(f"round {seed} {policy:12} P99 {p99:6.1f} ms, {100 * above:5.2f}% above 20 ms, {reads} reads", flush=True)
    medians = {policy: [statistics.median(column) for column in zip(*results)] for policy, results in measured.items()}
    print(json.dumps({policy: {"p99_ms": p99, "above_ratio": above} for policy, (p99, above) in medians.items()}))


if __name__ == "__main__":
    main()
