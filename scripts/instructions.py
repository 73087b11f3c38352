#!/usr/bin/env python3
"""Counts a node's instructions for an operation, beside those of an older build.

    scripts/instructions.py --before old/sherwood [--after target/release/sherwood] [CASE …]

Each build serves each case under callgrind, which interprets it: one thread, --ops operations after
as many that fill the cache; for listeners these set keys alone, so that hits are measured. Counts
are of user space, for all that the process does, and barely differ between two runs, whatever else
the machine does. The cases are listeners at depth 1 and 16, and `gateway`, whose requests ask a
store for keys that were not fetched before. With --shared the same build is measured twice, with
hits alone, as a node of a cluster without peers: the second time other nodes could cache the
backend, too.
Needs Python and valgrind; takes ten minutes.
"""

import argparse
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

NODE = """
[memory]
total = "256MiB"
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
CLUSTER = """
[cluster]
name = "measured"
node = "a"
nodes = ["a"]
bus = { servers = ["nats://127.0.0.1:1"] }
"""
STORE = '{ kind = "synthetic", bytes = "100B", latency = "0s" }'
LISTENER = ["--keys", "2000", "--pipeline"]
FILL = ["--get-ratio", "0", "--zipf", "0"]
CASES = {
    "memcached-1": ("memcached://{memcached}", [*LISTENER, "1"]),
    "memcached-16": ("memcached://{memcached}", [*LISTENER, "16"]),
    "redis-1": ("redis://{redis}", [*LISTENER, "1"]),
    "redis-16": ("redis://{redis}", [*LISTENER, "16"]),
    "gateway": ("{admin}", ["--backend", "plain", "--keys", "1000000", "--zipf", "0"]),
}


def instructions(args, binary, case, shared):
    """Returns the instructions of an operation of a case."""
    target, options = CASES[case]
    with tempfile.TemporaryDirectory() as directory:
        config, counts = Path(directory, "node.toml"), Path(directory, "counts")
        text = NODE.replace("STORE", args.store)
        if args.shared:
            text = text.replace('name = "plain"', 'name = "plain"\nshared = {}' if shared else 'name = "plain"') + CLUSTER
        config.write_text(text)
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", "--quiet"]
        node = subprocess.Popen([*command, binary, "serve", "--config", str(config)], stderr=subprocess.PIPE, text=True)
        try:
            ready = next(line for line in node.stderr if line.startswith("ready"))
            addresses = dict(word.split("=", 1) for word in ready.split()[1:])
            load = [args.after, "load", "--target", target.format(**addresses), *options, "--connections", "1"]
            load += ["--duration", "10m", "--ops", str(args.ops)]
            fill = load + (FILL if case != "gateway" else [])
            measured = load + (["--get-ratio", "1"] if args.shared and case != "gateway" else [])
            for control, sent in (("--zero", fill), ("--dump", measured)):
                subprocess.run(sent, check=True, capture_output=True)
                subprocess.run(["callgrind_control", control, str(node.pid)], check=True, capture_output=True)
            dump = Path(f"{counts}.1").read_text()
        finally:
            node.kill()
            node.wait()
    return int(re.search(r"^(?:totals|summary): (\d+)", dump, re.MULTILINE)[1]) / args.ops


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} [default: all]")
    parser.add_argument("--before", help="the older build")
    parser.add_argument("--shared", action="store_true", help="measure what sharing costs, in place of an older build")
    parser.add_argument("--after", default="target/release/sherwood", help="[default: target/release/sherwood]")
    parser.add_argument("--store", default=STORE, help="the store of `gateway`, as in a configuration [default: %(default)s]")
    parser.add_argument("--ops", type=int, default=20000, help="[default: 20000]")
    parser.add_argument("--rounds", type=int, default=3, help="[default: 3]")
    args = parser.parse_args()
    if bool(args.before) == args.shared:
        parser.error("give either --before or --shared")
    builds = [(args.before or args.after, False), (args.after, True)]
    for case in args.cases or CASES:
        # In turn, so that a machine that becomes slower counts for both.
        rounds = [[instructions(args, binary, case, shared) for binary, shared in builds] for _ in range(args.rounds)]
        before, after = map(statistics.median, zip(*rounds))
        print(f"{case:14} {before:9.0f} before, {after:9.0f} after: ratio {before / after:.3f}", flush=True)


if __name__ == "__main__":
    main()
