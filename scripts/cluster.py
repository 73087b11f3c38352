#!/usr/bin/env python3
"""Measures what a cluster of three nodes sends, how soon a write is seen, and how much is lent.

    scripts/cluster.py [--node target/release/sherwood] [bus] [latency] [rates] [divisions]

Starts a NATS server, a Redis server and three nodes on this machine.
  bus      bytes a second that a node publishes, at --rate requests a second through each
  latency  from the acknowledgement of a write at one node to the first read of it at another
  rates    units a second of a tenant that uses one node, of the total; and the most of all nodes in
           ten seconds, while its clients move from node to node
  divisions  the difference between two nodes that start from opposite divisions of their caches,
           after 360 decisions from one count
Needs Python, nats-server and redis-server; takes five minutes.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

NODES = ["a", "b", "c"]
TOTAL = 3_000
NODE = """
[memory]
total = "256MiB"
[server]
threads = 1
[admin]
bind = "127.0.0.1:0"
[cluster]
name = "measured"
node = "{name}"
nodes = ["a", "b", "c"]
bus = {{ servers = ["nats://127.0.0.1:{bus}"] }}
[[listener]]
protocol = "redis"
bind = "127.0.0.1:0"
backend = "catalog"
mode = "write-through"
[[backend]]
name = "catalog"
timeout = "1s"
shared = {{ stale = "2s" }}
store = {{ kind = "redis", address = "127.0.0.1:{store}" }}
[[backend]]
name = "made"
store = {{ kind = "synthetic", bytes = "100B", latency = "1ms" }}
"""
TOTAL_MIB = 64
DIVISION = """
[memory]
total = "64MiB"
[control]
policy = "robinhood"
delta = "200ms"
rbc_window = "10s"
[server]
threads = 1
[admin]
bind = "127.0.0.1:0"
[cluster]
name = "measured"
node = "{name}"
nodes = ["a", "b"]
bus = {{ servers = ["nats://127.0.0.1:{bus}"] }}
[[listener]]
protocol = "redis"
bind = "127.0.0.1:0"
[[backend]]
name = "x"
prefix = "x/"
[[backend]]
name = "y"
prefix = "y/"
[[partition]]
backend = "x"
initial = "{x}MiB"
[[partition]]
backend = "y"
initial = "{y}MiB"
"""
TENANTS = f"""
[[tenant]]
name = "default"
[[tenant]]
name = "other"
[[resource]]
name = "made-reads"
kind = "reads"
backend = "made"
unit = "count"
total = {TOTAL}
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def metric(address, name):
    """Sum of a metric's samples whose names begin so."""
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{re.escape(name)}\S* (\S+)", text, re.MULTILINE))


@contextlib.contextmanager
def cluster(args, texts):
    """Starts the servers, and a node of each text; gives the addresses of each by port name."""
    environment = dict(os.environ, PATH=os.environ["PATH"] + ":/usr/sbin")
    bus, store, processes = free_port(), free_port(), []
    with tempfile.TemporaryDirectory() as directory:

        def start(*command, **how):
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, **how))
            return processes[-1]

        try:
            start("nats-server", "--addr", "127.0.0.1", "--port", str(bus), stderr=subprocess.DEVNULL)
            start("redis-server", "--bind", "127.0.0.1", "--port", str(store), "--save", "")
            nodes = []
            for name, text in zip(NODES, texts):
                path = Path(directory, f"{name}.toml")
                path.write_text(text(name, bus, store))
                node = start(args.node, "serve", "--config", str(path), stderr=subprocess.PIPE, text=True)
                ready = next(line for line in node.stderr if line.startswith("ready"))
                threading.Thread(target=node.stderr.read, daemon=True).start()
                addresses = dict(word.split("=", 1) for word in ready.split()[1:])
                nodes.append({kind: address.replace("http://", "") for kind, address in addresses.items()})
            time.sleep(4)  # until the nodes know each other
            yield nodes
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


def three(further=""):
    """Texts of three nodes that share a backend."""
    return [lambda name, bus, store: NODE.format(name=name, bus=bus, store=store) + further] * 3


def load(args, node, *options):
    """Starts load on the gateway of a node."""
    command = [args.node, "load", "--target", f"http://{node['admin']}", "--backend", "made", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure_bus(args):
    with cluster(args, three()) as nodes:
        loads = [load(args, node, "--rate", str(args.rate), "--duration", f"{args.seconds + 5}s") for node in nodes]
        time.sleep(4)
        sent = lambda: [metric(node["admin"], 'sherwood_bus_bytes_total{direction="sent"') for node in nodes]
        before, begin = sent(), time.monotonic()
        time.sleep(args.seconds)
        rates = [(after - was) / (time.monotonic() - begin) for was, after in zip(before, sent())]
        for process in loads:
            process.wait()
    print(f"bus: {', '.join(f'{rate / 1000:.2f}' for rate in rates)} kB/s a node at {args.rate} requests/s each")


class Redis:
    """A connection to a listener."""

    def __init__(self, address):
        host, port = address.split(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, command):
        self.socket.sendall(f"{command}\r\n".encode())
        return self.socket.recv(4096)


def measure_latency(args):
    with cluster(args, three()) as nodes:
        writer, reader = Redis(nodes[0]["redis"]), Redis(nodes[1]["redis"])
        times = []
        for number in range(args.writes):
            reader.ask("GET k")
            assert writer.ask(f"SET k value-{number}") == b"+OK\r\n", "writes are acknowledged"
            begin = time.monotonic()
            while f"value-{number}".encode() not in reader.ask("GET k"):
                pass
            times.append(time.monotonic() - begin)
    times.sort()
    median, p99 = statistics.median(times), times[len(times) * 99 // 100]
    print(f"latency: median {median * 1000:.2f} ms, P99 {p99 * 1000:.2f} ms of {len(times)} writes")


def measure_rates(args):
    with cluster(args, three(TENANTS)) as nodes:
        used = lambda: sum(metric(node["admin"], "sherwood_tenant_used_total") for node in nodes)
        readings = []
        ended = threading.Event()

        def sample():
            while not ended.wait(0.5):
                readings.append((time.monotonic(), used()))

        sampler = threading.Thread(target=sample)
        sampler.start()
        keys = ["--keys", "100000000", "--zipf", "0", "--closed", "--connections", "256"]
        alone = load(args, nodes[0], *keys, "--duration", "20s")
        time.sleep(6)
        before, begin = used(), time.monotonic()
        time.sleep(10)
        rate = (used() - before) / (time.monotonic() - begin)
        alone.wait()
        for _ in range(3):
            for busy in (nodes[1:2], nodes, nodes[2:]):
                for process in [load(args, node, *keys, "--duration", "5s") for node in busy]:
                    process.wait()
        ended.set()
        sampler.join()
    most = max((b[1] - a[1]) / (b[0] - a[0]) for a in readings for b in readings if 10 <= b[0] - a[0] < 11)
    print(f"rates: {rate / TOTAL:.3f} of the total at one node; {most / TOTAL:.3f} at most in ten seconds")


def measure_divisions(args):
    texts = [lambda name, bus, _, x=x: DIVISION.format(name=name, bus=bus, x=x, y=TOTAL_MIB - x) for x in (48, 16)]
    with cluster(args, texts) as nodes:
        fills = []
        for node in nodes:
            command = [args.node, "load", "--target", f"redis://{node['redis']}", "--prefixes", "x/,y/"]
            command += ["--keys", "200000", "--value-size", "1000", "--zipf", "0", "--get-ratio", "0"]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            fills.append(subprocess.Popen([*command, "--rate", "3000", "--duration", "100s"], **quiet))
        json_of = lambda node, path: json.load(urllib.request.urlopen(f"http://{node['admin']}{path}"))
        size = lambda node: json_of(node, "/v1/partitions")[0]["allocated_bytes"]
        decisions = lambda node: json_of(node, "/v1/control")["decisions"]
        start = [decisions(node) for node in nodes]
        first = size(nodes[0]) - size(nodes[1])
        while any(decisions(node) - begin < 360 for node, begin in zip(nodes, start)):
            body = json.dumps([{"latency_us": 1000 + n, "blocking": "xy"[n % 2]} for n in range(200)]).encode()
            urllib.request.urlopen(f"http://{nodes[0]['admin']}/v1/reports", data=body)
            time.sleep(0.2)
        last = size(nodes[0]) - size(nodes[1])
        for fill in fills:
            fill.terminate()
            fill.wait()
    print(f"divisions: {first >> 10} KiB apart, after 360 decisions {last >> 10} KiB: {last / first:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of bus, latency, rates, divisions [default: all]")
    parser.add_argument("--node", default="target/release/sherwood", help="[default: target/release/sherwood]")
    parser.add_argument("--rate", type=int, default=1_000, help="of `bus`, a node [default: 1000]")
    parser.add_argument("--seconds", type=int, default=20, help="of `bus` [default: 20]")
    parser.add_argument("--writes", type=int, default=1_000, help="of `latency` [default: 1000]")
    args = parser.parse_args()
    parts = {"bus": measure_bus, "latency": measure_latency, "rates": measure_rates, "divisions": measure_divisions}
    for name in args.parts or parts:
        parts[name](args)


if __name__ == "__main__":
    main()
