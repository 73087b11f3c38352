#!/usr/bin/env python3
"""Measures and checks replicated stores in front of real servers.

    redis, memcached, zookeeper   latency of reads with 1, 2 and 3 duplicates, each stopped in slices
                                  at random moments, beside the model's; and for ZooKeeper serial
                                  writes to an ensemble

Figures are printed, and not judged, since they depend on what else the machine does. Where it may
(root), the bench runs before all programs that have no real-time priority.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile

import ensemble
import latency

CASES = {
    "redis": lambda options, directory: latency.run(options, "redis", directory),
    "memcached": lambda options, directory: latency.run(options, "memcached", directory),
    "zookeeper": lambda options, directory: latency.run(options, "zookeeper", directory) + ensemble.run(options, directory),
}
# Seconds of reads for each number of duplicates.
SECONDS = {"redis": 150, "memcached": 150, "zookeeper": 100}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", choices=CASES, help="which cases")
    parser.add_argument("--node", default=os.environ.get("SHERWOOD", "target/release/sherwood"), help="the program")
    parser.add_argument("--seed", type=int, default=1, help="of faults and accesses [default: 1]")
    parser.add_argument("--seconds", type=float, help=f"of reads for each number of duplicates [default: {SECONDS}]")
    options = parser.parse_args()
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    for case in options.cases:
        with tempfile.TemporaryDirectory(prefix="sherwood-zoolander-") as directory:
            seconds = SECONDS[case] if options.seconds is None else options.seconds
            CASES[case](argparse.Namespace(**{**vars(options), "seconds": seconds}), directory)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
