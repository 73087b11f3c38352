#!/usr/bin/env python3
"""Runs YCSB's workloads A, B, C, D and F against memcached and a node, with all data cached.

YCSB's core (0.17.0) and spymemcached, the client of its memcached binding, come from Maven Central
and are kept in --work, outside the repository; the binding itself is not there, and is compiled
from scripts/ycsb/MemcachedBinding.java. It cannot scan, so that workload E is left out, as with
YCSB's own.

Both servers run at the same time with one thread each and hold RECORDS records of 1 KB. YCSB uses
one of them at a time and sends as fast as answers arrive; nothing is pinned to a core, because
YCSB's client hands every operation from one thread to another, which takes five times as long on a
single core. It needs most of the processor time (`load_cores`, `server_cores`), and limits the
throughput. Each round runs every workload on both, in another order, in a new Java process each
time. The result is the median over rounds of the ratios within a round. P99 is of reads.

JSON lines go to stdout, progress and the table to stderr. The default takes about seven minutes.
"""

import argparse
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time

from peers import Server, free_port, memcached_command, sherwood_command

WORKLOADS = {
    "A": {"readproportion": 0.5, "updateproportion": 0.5},
    "B": {"readproportion": 0.95, "updateproportion": 0.05},
    "C": {"readproportion": 1},
    "D": {"readproportion": 0.95, "insertproportion": 0.05, "requestdistribution": "latest"},
    "F": {"readproportion": 0.5, "readmodifywriteproportion": 0.5},
}
DEFAULTS = {"workload": "site.ycsb.workloads.CoreWorkload", "requestdistribution": "zipfian", "readproportion": 0,
            "updateproportion": 0, "insertproportion": 0, "scanproportion": 0, "readmodifywriteproportion": 0}
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>sherwood</groupId><artifactId>ycsb</artifactId><version>1</version><dependencies>
<dependency><groupId>site.ycsb</groupId><artifactId>core</artifactId><version>0.17.0</version></dependency>
<dependency><groupId>net.spy</groupId><artifactId>spymemcached</artifactId><version>2.12.3</version></dependency>
</dependencies></project>
"""
# Without the slower compiler, whose threads compete with those of the load for its first seconds.
JAVA = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def prepare(work):
    """Downloads YCSB and compiles the binding; returns the class path."""
    jars, classes = os.path.join(work, "jars"), os.path.join(work, "classes")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ycsb", "MemcachedBinding.java")
    for program in ("javac", "mvn"):
        if subprocess.run(["which", program], capture_output=True, check=False).returncode:
            raise SystemExit(f"ycsb: there is no {program}: apt-get install --no-install-recommends maven default-jdk-headless")
    os.makedirs(classes, exist_ok=True)
    if not os.path.isdir(jars):
        with open(os.path.join(work, "pom.xml"), "w", encoding="utf-8") as pom:
            pom.write(POM)
        subprocess.run(["mvn", "-q", "-B", COPY, f"-DoutputDirectory={jars}.part"], cwd=work, check=True, stdout=sys.stderr)
        os.rename(f"{jars}.part", jars)
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", classes, source], check=True)
    return f"{classes}:{jars}/*"


def ycsb(options, server, phase, properties):
    """Runs a phase of YCSB, `-load` or `-t`, and returns its figures by section and name."""
    command = ["java", *JAVA, "-Xmx512m", "-cp", options.path, "site.ycsb.Client", phase]
    command += ["-db", "MemcachedBinding", "-threads", str(options.clients)]
    fixed = {"memcached.host": f"127.0.0.1:{server.port}", "recordcount": options.records, "status.interval": 1000}
    for name, value in {**DEFAULTS, **properties, **fixed}.items():
        command += ["-p", f"{name}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"ycsb: {' '.join(command)} failed:\n{done.stderr[-2000:]}")
    lines = re.findall(r"^\[([A-Z-]+)\], ([^,]+), ([0-9.]+)", done.stdout, re.MULTILINE)
    return {(section, name): float(value) for section, name, value in lines}


def measure(options, server, workload, number):
    used, cpu_s = resource.getrusage(resource.RUSAGE_CHILDREN), server.cpu_s()
    began = time.monotonic()
    found = ycsb(options, server, "-t", {**WORKLOADS[workload], "operationcount": 1_000_000_000, "maxexecutiontime": options.seconds})
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    failed = sum(value for (_, name), value in found.items() if name.startswith("Return=") and name != "Return=OK")
    load_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return {
        "case": "ycsb",
        "workload": workload,
        "server": server.name,
        "round": number,
        "ops_per_s": round(found["OVERALL", "Throughput(ops/sec)"]),
        "read_p99_us": found["READ", "99thPercentileLatency(us)"],
        "read_mean_us": round(found["READ", "AverageLatency(us)"], 1),
        "failed": round(failed),
        "server_cores": round((server.cpu_s() - cpu_s) / wall_s, 3),
        "load_cores": round(load_s / wall_s, 3),
    }


def table(options, found):
    print(f"\nYCSB, {options.clients} clients, {options.records} records of 1 KB: medians of {options.rounds} rounds, and"
          " ratios within a round", file=sys.stderr)
    print(f"  {'':<4}{'memcached/s':>13}{'sherwood/s':>12}{'ratio':>8}{'p99 µs':>9}{'p99 µs':>9}{'ratio':>8}", file=sys.stderr)
    for workload in options.workloads:
        theirs, ours = ([line for line in found if line["workload"] == workload and line["server"] == name] for name in ("memcached", "sherwood"))
        ratio = lambda field: statistics.median(one[field] / other[field] for one, other in zip(ours, theirs))
        middle = lambda lines, field: statistics.median(line[field] for line in lines)
        failed = sum(line["failed"] for line in theirs + ours)
        print(
            f"  {workload:<4}{middle(theirs, 'ops_per_s'):>13.0f}{middle(ours, 'ops_per_s'):>12.0f}{ratio('ops_per_s'):>8.3f}"
            f"{middle(theirs, 'read_p99_us'):>9.0f}{middle(ours, 'read_p99_us'):>9.0f}{ratio('read_p99_us'):>8.3f}"
            + (f" FAILED {failed}" if failed else ""),
            file=sys.stderr,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    environment = os.environ.get
    parser.add_argument("--sherwood", default=environment("SHERWOOD", "target/release/sherwood"), help="the binary")
    parser.add_argument("--memcached", default=environment("MEMCACHED", "memcached"))
    parser.add_argument("--work", default=os.path.expanduser("~/.cache/sherwood-ycsb"), help="for what is downloaded [default: %(default)s]")
    parser.add_argument("--workloads", type=lambda names: names.upper().split(","), default=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=int(environment("ROUNDS", "5")))
    parser.add_argument("--seconds", type=int, default=6, help="of one measurement [default: %(default)s]")
    parser.add_argument("--clients", type=int, default=8, help="threads of YCSB, each with a connection [default: %(default)s]")
    parser.add_argument("--records", type=int, default=50_000, help="[default: %(default)s]")
    options = parser.parse_args()
    options.sherwood_flags, options.memory_mib = "", 1024
    options.path = prepare(options.work)
    servers, found = [], []
    try:
        port = free_port()
        servers.append(Server("memcached", "memcached", port, memcached_command(options.memcached, port, 1, options.memory_mib), None))
        port = free_port()
        servers.append(Server("sherwood", "memcached", port, sherwood_command(options, "memcached", 1, port), None))
        for server in servers:
            server.wait_until_ready()
            # Records that D inserts come after these, and are inserted again by the next round.
            ycsb(options, server, "-load", {"operationcount": 0})
        for number in range(options.rounds):
            for workload in options.workloads:
                for server in servers if number % 2 == 0 else servers[::-1]:
                    print(f"ycsb: round {number + 1} of {options.rounds}: {workload}, {server.name}", file=sys.stderr)
                    line = measure(options, server, workload, number)
                    print(json.dumps(line), flush=True)
                    found.append(line)
    finally:
        for server in servers:
            server.stop()
    table(options, found)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
