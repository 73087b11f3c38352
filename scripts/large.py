#!/usr/bin/env python3
"""Compares large values with memcached and Redis: throughput, and processor time per GiB of values.

Each server has one thread on SERVER_CORE and 512 MiB, and is full; the load runs on LOAD_CORE, on
one connection with DEPTH commands in flight, and uses one server at a time. Each round measures
every server once, in another order. The result is the median over the rounds of the ratios within
a round.

Cases: `set` sets keys at random of twice as many as fit; `get` asks for keys of half the memory,
which are all there; `mixed` is nine gets to a set, of the same keys. Page faults count per
operation, on all threads of the server. JSON lines go to stdout, progress and the summary to
stderr. The cases take a quarter of an hour.
"""

import argparse
import json
import os
import signal
import statistics
import sys

import peers

MIB = 1 << 20
CASES = {"set": 0, "get": 1, "mixed": 0.9}
# Keys, as a multiple of the memory: more than fit, and so few that all fit.
OVERFULL, FITTING = 2, 0.5
# Times that the keys of a case are set beforehand: at random, 5 times leave 0.7% out.
FILLS = 5
DEPTH = 4


def faults(server):
    """Page faults of the process so far."""
    with open(f"/proc/{server.process.pid}/stat", encoding="ascii") as stat:
        return int(stat.read().rpartition(")")[2].split()[7])


def keys(options, ratio, value_bytes):
    return int(ratio * options.memory_mib * MIB) // value_bytes


def send(options, server, ratio, value_bytes, *arguments):
    """Runs the load on uniformly drawn keys."""
    return peers.load(
        options, server, options.load_core, "--zipf", "0", "--value-size", str(value_bytes), "--closed", "--pipeline",
        str(DEPTH), *arguments, keys=keys(options, ratio, value_bytes),
    )


def fill(options, server, case, value_bytes):
    """Fills the memory, and for gets sets the keys that they ask for."""
    overfull = keys(options, OVERFULL, value_bytes)
    send(options, server, OVERFULL, value_bytes, "--get-ratio", "0", "--ops", str(overfull))
    if case != "set":
        fitting = keys(options, FITTING, value_bytes)
        send(options, server, FITTING, value_bytes, "--get-ratio", "0", "--ops", str(FILLS * fitting))


def measure(options, server, case, value_bytes):
    ratio = OVERFULL if case == "set" else FITTING
    before, cpu_s = faults(server), server.cpu_s()
    duration = f"{round(options.seconds * 1000)}ms"
    report = send(options, server, ratio, value_bytes, "--get-ratio", str(CASES[case]), "--duration", duration)
    cpu_s, faulted = server.cpu_s() - cpu_s, faults(server) - before
    gib = (report["hits"] + report["sets"]) * value_bytes / (1 << 30)
    return {
        "case": case,
        "value_bytes": value_bytes,
        "server": server.name,
        "ops_per_s": round(report["ops_per_s"]),
        "gib_per_s": round(gib / report["duration_s"], 4),
        "cpu_s_per_gib": round(cpu_s / gib, 4),
        "faults_per_op": round(faulted / report["ops"], 3),
        "hit_ratio": report["hit_ratio"] and round(report["hit_ratio"], 4),
        "errors": report["errors"],
        "load_core_ratio": round(report["load_core_ratio"], 3),
        "resident_mib": server.resident_bytes() // MIB,
    }


def ratios(found, ours, peer, field):
    """Median of the ratios within a round."""
    return statistics.median(mine[field] / its[field] for mine, its in zip(found[ours], found[peer]))


def summary(case, value_bytes, found):
    print(f"\n{case}: value_bytes {value_bytes}", file=sys.stderr)
    print(f"  {'':<16}{'op/s':>9}{'GiB/s':>8}{'cpu s/GiB':>11}{'faults/op':>11}{'load':>7}{'MiB':>6}", file=sys.stderr)
    for name, lines in found.items():
        errors = sum(line["errors"] for line in lines)
        middle = lambda field, lines=lines: peers.median(lines, field)
        print(
            f"  {name:<16}{middle('ops_per_s'):>9.0f}{middle('gib_per_s'):>8.2f}{middle('cpu_s_per_gib'):>11.3f}"
            f"{middle('faults_per_op'):>11.2f}{middle('load_core_ratio'):>7.2f}{middle('resident_mib'):>6.0f}"
            + (f" ERRORS {errors}" if errors else ""),
            file=sys.stderr,
        )
    for ours in (name for name in found if name.startswith("sherwood")):
        for peer in (name for name in found if not name.startswith("sherwood")):
            speed, cpu = (ratios(found, ours, peer, field) for field in ("ops_per_s", "cpu_s_per_gib"))
            print(f"  {ours} / {peer}: throughput {speed:.2f}, processor time {cpu:.2f}", file=sys.stderr)


def compare(options, case, value_bytes):
    """Measures every server once per round, starting with another one each time."""

    def work(servers):
        found = {server.name: [] for server in servers}
        for server in servers:
            fill(options, server, case, value_bytes)
        for number in range(options.rounds):
            first = number % len(servers)
            for server in servers[first:] + servers[:first]:
                line = {"round": number, **measure(options, server, case, value_bytes)}
                print(json.dumps(line), flush=True)
                found[server.name].append(line)
        summary(case, value_bytes, found)

    peers.with_servers(options, 1, options.server_core, work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    environment = os.environ.get
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="which cases [default: all]")
    peers.add_servers(parser)
    parser.set_defaults(memory_mib=512)
    parser.add_argument("--load", default=None, help="the binary that makes the load [default: --sherwood]")
    parser.add_argument("--rounds", type=int, default=int(environment("ROUNDS", "5")))
    parser.add_argument("--seconds", type=float, default=2, help="of one measurement")
    parser.add_argument("--server-core", default=environment("SERVER_CORE", "0"))
    parser.add_argument("--load-core", default=environment("LOAD_CORE", "1"))
    parser.add_argument("--values", default="4096,16384,65536,262144,1000000", help="sizes of values, bytes")
    options = parser.parse_args()
    options.load = options.load or options.sherwood
    for case in options.cases or CASES:
        for value_bytes in (int(size) for size in options.values.split(",")):
            compare(options, case, value_bytes)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
