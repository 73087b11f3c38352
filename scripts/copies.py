#!/usr/bin/env python3
"""Measures what copies of slow calls do for P99 while one of three real servers stops and continues.

    scripts/copies.py [--node target/release/sherwood] [--kinds redis,memcached,mariadb,http]
                      [--rules power-of-two,hedge] [--rounds 3] [--seconds 6] [--rate 100]

For each kind, three servers with the same values are the replicas of a node whose cache holds
almost nothing. The rules are measured in turn by reads at a fixed rate, first undisturbed, then
while the first server is stopped for 50 ms in each 500 ms. Printed are P99 and P99.9 of the reads,
the reads answered, and the time of servers for copies that were not needed as a share of the rest.
A `--closed` run measures throughput instead. Servers, as packaged: redis-server, memcached,
mariadb-server, nginx-light.
"""

import argparse
import itertools
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

KEYS = 200_000
STOPPED_S, PERIOD_S = 0.05, 0.5
RULES = {
    "power-of-two": "",
    "peak-ewma": 'balance = "peak-ewma"',
    "hedge": 'copies = "hedge"',
    "hedge+peak-ewma": 'copies = "hedge", balance = "peak-ewma"',
    "tied": 'copies = "tied"',
    "idle": 'copies = "idle"',
    "fixed": 'copies = "fixed"',
    "tokens": 'balance = "tokens"',
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"no server accepts on port {port} after 30 s")


def start(command, port):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(port)
    return process


def redis(directory):
    port = free_port()
    return start(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", directory], port), port


def memcached(_):
    port = free_port()
    return start(["memcached", "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "256", "-t", "1", "-u", "nobody"], port), port


def mariadb(directory):
    port = free_port()
    data = os.path.join(directory, f"mariadb-{port}")
    subprocess.run(
        ["mariadb-install-db", f"--datadir={data}", "--auth-root-authentication-method=normal", "--skip-test-db", "--user=root"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    at = os.path.join(data, "socket")
    command = ["mariadbd", f"--datadir={data}", f"--socket={at}", f"--port={port}", "--bind-address=127.0.0.1", "--user=root"]
    process = start(command, port)
    statements = (
        "CREATE DATABASE shop; USE shop; CREATE TABLE items (id VARCHAR(32) PRIMARY KEY, value VARBINARY(200)); "
        f"INSERT INTO items SELECT CONCAT('{KEY}', LPAD(seq, {WIDTH}, '0')), REPEAT('v', 100) FROM seq_0_to_{KEYS - 1}; "
        "CREATE USER app@'127.0.0.1' IDENTIFIED BY 'app'; GRANT SELECT ON shop.* TO app@'127.0.0.1';"
    )
    subprocess.run(["mariadb", f"--socket={at}", "--user=root", "--execute", statements], check=True)
    return process, port


def http(directory):
    port = free_port()
    at = os.path.join(directory, f"nginx-{port}")
    os.makedirs(at)
    configuration = os.path.join(at, "nginx.conf")
    with open(configuration, "w") as file:
        file.write(
            f"daemon off; master_process off; pid {at}/pid; error_log {at}/error.log; events {{}} "
            f"http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {at}; proxy_temp_path {at}; "
            f"fastcgi_temp_path {at}; uwsgi_temp_path {at}; scgi_temp_path {at}; "
            f'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{"v" * 100}"; }} }} }}'
        )
    return start(["nginx", "-c", configuration, "-p", at], port), port


# The keys that `sherwood load` reads: `k` and a decimal number, 20 bytes.
KEY, WIDTH = "k", 19
KINDS = {"redis": redis, "memcached": memcached, "mariadb": mariadb, "http": http}


def store(kind, port):
    if kind == "mariadb":
        return (
            f'{{ kind = "mysql", address = "127.0.0.1:{port}", user = "app", password_env = "COPIES_PASSWORD", '
            'database = "shop", query = "SELECT id, value FROM items WHERE id IN (:keys)" }'
        )
    if kind == "http":
        return f'{{ kind = "http", url = "http://127.0.0.1:{port}/items/{{key}}" }}'
    return f'{{ kind = "{kind}", address = "127.0.0.1:{port}" }}'


def fill(asked, kind, ports):
    if kind not in ("redis", "memcached"):
        return
    for port in ports:
        target = f"{kind}://127.0.0.1:{port}"
        load(asked, target, "--get-ratio", "0", "--ops", str(5 * KEYS), "--zipf", "0", "--closed", "--pipeline", "64", "--connections", "4")


SEEDS = itertools.count(1)


def load(asked, target, *flags):
    """Runs the load generator, each time with other keys, and returns its report."""
    flags = [*flags, "--seed", str(next(SEEDS))]
    command = [asked.node, "load", "--target", target, "--keys", str(KEYS), "--key-size", "20", "--value-size", "100", "--json"]
    ended = subprocess.run([*command, *flags], capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended.stderr}")
    return json.loads(ended.stdout)


class Node:
    """A node in front of the replicas, by one rule."""

    def __init__(self, asked, directory, kind, ports, rule):
        self.port, self.admin = free_port(), free_port()
        path = os.path.join(directory, f"{kind}-{rule}.toml")
        with open(path, "w") as file:
            file.write(
                f'[memory]\ntotal = "1MiB"\n[admin]\nbind = "127.0.0.1:{self.admin}"\n[control]\npolicy = "static"\n'
                f'[[listener]]\nbind = "127.0.0.1:{self.port}"\nbackend = "items"\nmode = "read-through"\n'
                f'[[backend]]\nname = "items"\nreplicas = [{", ".join(store(kind, port) for port in ports)}]\n'
                f"dispatch = {{ {RULES[rule]} }}\n"
            )
        environment = dict(os.environ, COPIES_PASSWORD="app")
        self.process = subprocess.Popen([asked.node, "serve", "--config", path], stderr=subprocess.DEVNULL, env=environment)
        wait_for(self.port)
        wait_for(self.admin)
        self.target = f"memcached://127.0.0.1:{self.port}"

    def metrics(self):
        """Returns the attempts by kind and outcome, and the seconds that were wasted."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        values = (line.rsplit(" ", 1) for line in lines if line.startswith("sherwood_attempts"))
        return {name: float(value) for name, value in values}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Slices:
    """Stops a server for a slice of each period until it is closed."""

    def __init__(self, process):
        self.process, self.ended = process, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended.wait(PERIOD_S - STOPPED_S):
            self.process.send_signal(signal.SIGSTOP)
            self.ended.wait(STOPPED_S)
            self.process.send_signal(signal.SIGCONT)

    def close(self):
        self.ended.set()
        self.thread.join()


def extra(before, after):
    """Returns copies that were started, as a share of first attempts."""
    def grown(kind, but=()):
        names = (name for name in after if f'kind="{kind}"' in name and not any(word in name for word in but))
        return sum(after[name] - before.get(name, 0) for name in names)
    first = grown("first")
    return grown("copy", but=["withdrawn"]) / first if first else 0.0


def measure(asked, node, server, disturbed):
    slices = Slices(server) if disturbed else None
    before = node.metrics()
    pace = ["--closed"] if asked.closed else ["--rate", str(asked.rate)]
    try:
        report = load(
            asked, node.target, "--get-ratio", "1", "--zipf", "0", "--connections", "32",
            "--duration", f"{asked.seconds:g}s", *pace,
        )
    finally:
        if slices:
            slices.close()
    latency = report["latency_us"]
    return {
        "p99_ms": latency["p99"] / 1000, "p99_9_ms": latency["p99_9"] / 1000, "ops_per_s": report["ops_per_s"],
        "errors": report["errors"], "extra_ratio": extra(before, node.metrics()),
    }


def compare(asked, directory, kind):
    servers = [KINDS[kind](directory) for _ in range(3)]
    ports = [port for _, port in servers]
    nodes = {}
    try:
        fill(asked, kind, ports)
        nodes = {rule: Node(asked, directory, kind, ports, rule) for rule in asked.rules.split(",")}
        for node in nodes.values():
            load(asked, node.target, "--get-ratio", "1", "--zipf", "0", "--connections", "32", "--rate", "1000", "--duration", "1s")
        results = []
        for disturbed in (False, True):
            measured = {rule: [] for rule in nodes}
            for turn in range(asked.rounds):
                order = list(nodes.items())
                for rule, node in order[turn % len(order):] + order[:turn % len(order)]:
                    measured[rule].append(measure(asked, node, servers[0][0], disturbed))
            results += [summary(kind, disturbed, rule, runs, measured) for rule, runs in measured.items()]
        return results
    finally:
        for node in nodes.values():
            node.stop()
        for process, _ in servers:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait()


def summary(kind, disturbed, rule, runs, measured):
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    base = next(iter(measured.values()))
    for name in ("p99_ms", "ops_per_s"):
        pairs = zip(runs, base)
        medians[f"{name}_over_first"] = statistics.median(run[name] / first[name] for run, first in pairs)
    row = {"kind": kind, "disturbed": disturbed, "rule": rule, **medians}
    print(
        f"{kind:10} {'stopping' if disturbed else 'quiet':9} {rule:16} P99 {row['p99_ms']:8.2f} ms ({row['p99_ms_over_first']:.2f}) "
        f"P99.9 {row['p99_9_ms']:8.2f} ms, {row['ops_per_s']:8.0f}/s ({row['ops_per_s_over_first']:.2f}), "
        f"copies {100 * row['extra_ratio']:5.2f}%, errors {row['errors']:.0f}",
        flush=True,
    )
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", default="target/release/sherwood")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rules", default="power-of-two,hedge")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--closed", action="store_true")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON at the end")
    asked = parser.parse_args()
    unknown = [rule for rule in asked.rules.split(",") if rule not in RULES]
    unknown += [kind for kind in asked.kinds.split(",") if kind not in KINDS]
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; rules: {', '.join(RULES)}; kinds: {', '.join(KINDS)}")
    directory = tempfile.mkdtemp(prefix="sherwood-copies-")
    try:
        rows = [row for kind in asked.kinds.split(",") for row in compare(asked, directory, kind)]
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if asked.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
