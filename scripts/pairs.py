#!/usr/bin/env python3
"""Compares two builds, memcached's two protocols, or a gateway with and without spans, by operations per second, in pairs.

Two nodes run at once on one core; the load speaks to one at a time, in turn, from the other core.

examples:
  scripts/pairs.py --before old/sherwood                   a listener, one operation at a time
  scripts/pairs.py --before old/sherwood --pipeline 16     the same, 16 under way
  scripts/pairs.py --before old/sherwood --redis           the same by Redis' protocol
  scripts/pairs.py --before old/sherwood --gateway         POST /v1/requests
  scripts/pairs.py --binary --pipeline 16                  text, and the binary protocol
  scripts/pairs.py --before old/sherwood --gateway --misses --store '{ kind = "http", url = "http://…/{key}" }'
  scripts/pairs.py --gateway --spans                       the gateway, with spans to a collector and without
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

NODE = """
[memory]
total = "TOTAL"
[admin]
bind = "127.0.0.1:0"
[server]
threads = 1
[[listener]]
bind = "127.0.0.1:0"
backend = "plain"
[[listener]]
protocol = "redis"
bind = "127.0.0.1:0"
backend = "plain"
[[backend]]
name = "plain"
store = STORE
"""
STORE = '{ kind = "synthetic", bytes = "100B", latency = "0s" }'

SPANS = """
[otlp.export]
endpoint = "http://{collector}"
sample_ratio = 0.01
"""

COLLECTOR = """
[admin]
bind = "127.0.0.1:0"
[otlp]
bind = "{collector}"
[[backend]]
name = "plain"
"""


def start(args, binary, path, core):
    """Starts a node, and returns it with its addresses by kind."""
    command = ["taskset", "-c", str(core), binary, "serve", "--config", str(path)]
    node = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in node.stderr:
        if line.startswith("ready"):
            return node, dict(word.split("=", 1) for word in line.split()[1:])
    raise SystemExit(f"the node with {path} does not start")


def load(args, addresses, protocol="memcached"):
    """Operations per second of a run."""
    command = ["taskset", "-c", str(args.load_core), args.after, "load", "--json"]
    command += ["--connections", str(args.connections), "--duration", f"{args.seconds}s"]
    if args.gateway:
        keys = ["--keys", "1000000", "--zipf", "0"] if args.misses else ["--keys", "10000"]
        command += ["--target", addresses["admin"], "--backend", "plain", "--batch", "10", *keys]
    else:
        address = addresses["redis" if protocol == "redis" else "memcached"]
        command += ["--target", f"{protocol}://{address}", "--pipeline", str(args.pipeline)]
    seen = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return seen["ops_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", help="the other build [default: --after]")
    parser.add_argument("--after", default="target/release/sherwood", help="[default: target/release/sherwood]")
    parser.add_argument("--gateway", action="store_true", help="load the gateway, and not a listener")
    parser.add_argument("--misses", action="store_true", help="have the gateway fetch most keys")
    parser.add_argument("--store", default=STORE, help="the store, as in a configuration [default: %(default)s]")
    parser.add_argument("--spans", action="store_true", help="export spans of 1%% of the second node's requests")
    parser.add_argument("--binary", action="store_true", help="load the second node by memcached's binary protocol")
    parser.add_argument("--redis", action="store_true", help="load the listeners by Redis' protocol")
    parser.add_argument("--collector", default="127.0.0.1:22317", help="address of the collector [default: 127.0.0.1:22317]")
    parser.add_argument("--pipeline", type=int, default=1, help="[default: 1]")
    parser.add_argument("--connections", type=int, default=8, help="[default: 8]")
    parser.add_argument("--rounds", type=int, default=11, help="[default: 11]")
    parser.add_argument("--seconds", type=int, default=3, help="of a run [default: 3]")
    parser.add_argument("--node-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    args = parser.parse_args()
    if args.redis and (args.gateway or args.binary):
        parser.error("--redis is a listener's protocol: leave out --gateway and --binary")
    text = "redis" if args.redis else "memcached"
    protocols = [text, "memcached-binary" if args.binary else text]
    running = []
    with tempfile.TemporaryDirectory() as directory:
        def serve(name, binary, config, core=args.node_core):
            path = Path(directory, name)
            # A small cache has few of the million keys.
            config = config.replace("TOTAL", "16MiB" if args.misses else "1GiB")
            path.write_text(config.replace("STORE", args.store))
            node, addresses = start(args, binary, path, core)
            running.append(node)
            return addresses

        try:
            if args.spans:
                # A collector of its own takes no time of the node's core.
                serve("collector.toml", args.after, COLLECTOR.format(collector=args.collector), args.load_core)
            nodes = [
                serve("before.toml", args.before or args.after, NODE),
                serve("after.toml", args.after, NODE + SPANS.format(collector=args.collector) * args.spans),
            ]
            for addresses in nodes:
                load(args, addresses, text)  # fills the caches
            rounds = []
            for number in range(args.rounds):
                order = [0, 1] if number % 2 == 0 else [1, 0]
                rates = {at: load(args, nodes[at], protocols[at]) for at in order}
                rounds.append((rates[0], rates[1]))
                print(f"{rates[0]:.0f} before, {rates[1]:.0f} after: {rates[1] / rates[0]:.3f}", flush=True)
        finally:
            for node in running:
                node.terminate()
    before, after = (statistics.median(of) for of in zip(*rounds))
    ratio = statistics.median(after / before for before, after in rounds)
    print(f"medians: {before:.0f}/s before, {after:.0f}/s after; ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
