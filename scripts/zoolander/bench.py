#!/usr/bin/env python3
"""Measures and checks replicated stores in front of real servers.

    redis, memcached, zookeeper   latency of reads with 1, 2 and 3 duplicates, each stopped in slices
                                  at random moments, beside the model's; and for ZooKeeper serial
                                  writes to an ensemble
    cassandra                     faults, with two Cassandra servers
    faults                        servers are killed and paused in turn under reads, writes and
                                  sessions, and the histories are checked
    layouts                       partitions and duplicates change under writes

Exit status: 0 if nothing contradicts what the stores declare, 1 otherwise. Figures are printed, and
not judged, since they depend on what else the machine does. Where it may (root), a case that measures
runs before all programs that have no real-time priority.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile

import ensemble
import faults
import latency
import layouts

CASES = {
    "redis": lambda options, directory: latency.run(options, "redis", directory),
    "memcached": lambda options, directory: latency.run(options, "memcached", directory),
    "zookeeper": lambda options, directory: latency.run(options, "zookeeper", directory) + ensemble.run(options, directory),
    "cassandra": lambda options, directory: faults.run(options, "cassandra", directory),
    "faults": lambda options, directory: faults.run(options, options.kind, directory),
    "layouts": layouts.run,
}
MEASURED = ("redis", "memcached", "zookeeper", "layouts")
# Seconds of each case: of reads for each number of duplicates, of rounds of faults, and of changes.
SECONDS = {"redis": 60, "memcached": 60, "zookeeper": 60, "cassandra": 240, "faults": 500, "layouts": 300}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", choices=CASES, help="which cases")
    parser.add_argument("--node", default=os.environ.get("SHERWOOD", "target/release/sherwood"), help="the program")
    parser.add_argument("--seed", type=int, default=1, help="of faults and accesses [default: 1]")
    words = "of reads for each number of duplicates; of faults and changes: after so many no further round begins"
    parser.add_argument("--seconds", type=float, help=f"{words} [default: {SECONDS}]")
    parser.add_argument("--kind", default="redis", choices=["redis", "memcached"], help="servers of `faults` [default: redis]")
    parser.add_argument("--partitions", type=int, default=1, help="of `faults` [default: 1]")
    parser.add_argument("--duplicates", type=int, help="of `faults` [default: 3; of Cassandra 2]")
    options = parser.parse_args()
    found = []
    for case in options.cases:
        scheduler = (os.SCHED_RR, os.sched_param(1)) if case in MEASURED else (os.SCHED_OTHER, os.sched_param(0))
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, *scheduler)
        with tempfile.TemporaryDirectory(prefix="sherwood-zoolander-") as directory:
            seconds = SECONDS[case] if options.seconds is None else options.seconds
            found += CASES[case](argparse.Namespace(**{**vars(options), "seconds": seconds}), directory)
    for sentence in found[:20]:
        print(sentence)
    print(f"{len(found)} contradictions")
    return 1 if found else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
