#!/usr/bin/env python3
"""Measures what sixteen tenants cost: a listener's operations per second, with tenants and without.

Two nodes serve plain caches at once, one of them divided among sixteen tenants whose network has a
rate that nobody reaches; the load speaks to one at a time, in turn, on the other core, as one tenant.

examples:
  scripts/tenants_cost.py
  scripts/tenants_cost.py --pipeline 1 --rounds 9
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

TENANTS = 16


def configuration(tenants):
    """A node's configuration: a listener without a route of its own, and perhaps tenants."""
    lines = ['[memory]', 'total = "1GiB"', '[admin]', 'bind = "off"', '[server]', 'threads = 1']
    lines += ['[[listener]]', 'bind = "127.0.0.1:0"'] + ['tenant = "t0"'] * bool(tenants)
    if tenants:
        lines += ['[tenants]', 'policy = "baseline"']
        lines += ['[[resource]]', 'name = "network"', 'kind = "network"', 'legs = "client"', 'total = "900GB"']
    for tenant in range(tenants):
        share = 0.4 if tenant == 0 else 0.6 / (tenants - 1)
        lines += ['[[tenant]]', f'name = "t{tenant}"', f'base = {{ cache = {share}, network = {share} }}']
    return "\n".join(lines) + "\n"


def start(args, path):
    """Starts a node, and returns it with the port of its listener."""
    command = ["taskset", "-c", str(args.node_core), args.sherwood, "serve", "--config", str(path)]
    node = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in node.stderr:
        if line.startswith("ready"):
            return node, line.split("memcached=")[1].split()[0]
    raise SystemExit(f"the node with {path} does not start")


def load(args, address):
    """Operations per second of a run."""
    command = ["taskset", "-c", str(args.load_core), args.sherwood, "load", "--target", f"memcached://{address}"]
    command += ["--pipeline", str(args.pipeline), "--connections", str(args.connections)]
    command += ["--duration", f"{args.seconds}s", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["ops_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sherwood", default="target/release/sherwood")
    parser.add_argument("--pipeline", type=int, default=16, help="[default: 16]")
    parser.add_argument("--connections", type=int, default=8, help="[default: 8]")
    parser.add_argument("--rounds", type=int, default=9, help="[default: 9]")
    parser.add_argument("--seconds", type=int, default=5, help="of a run [default: 5]")
    parser.add_argument("--node-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        nodes = []
        try:
            for tenants in (0, TENANTS):
                path = Path(directory, f"{tenants}.toml")
                path.write_text(configuration(tenants))
                nodes.append(start(args, path))
            for _, address in nodes:
                load(args, address)  # fills the caches
            rounds = []
            for number in range(args.rounds):
                order = [0, 1] if number % 2 == 0 else [1, 0]
                rates = {at: load(args, nodes[at][1]) for at in order}
                rounds.append((rates[0], rates[1]))
                print(f"{rates[0]:.0f} without, {rates[1]:.0f} with: {rates[1] / rates[0]:.3f}", flush=True)
        finally:
            for node, _ in nodes:
                node.terminate()
    plain, divided = (statistics.median(of) for of in zip(*rounds))
    ratio = statistics.median(divided / plain for plain, divided in rounds)
    print(f"medians: {plain:.0f}/s without tenants, {divided:.0f}/s with {TENANTS}; ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
