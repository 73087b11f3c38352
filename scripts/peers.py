#!/usr/bin/env python3
"""Compares throughput, processor time per request and tail latency with memcached, Pogocache, Redis and Valkey.

Sherwood and Pogocache take part twice, once with each protocol: `sherwood` and `pogocache` speak
memcached's, `sherwood-redis` and `pogocache-redis` Redis's.

All servers run at the same time, each with one thread on SERVER_CORE. The load runs on LOAD_CORE
and uses one server at a time. Each round measures every server once, in another order, so that
other load on the machine affects all alike. The result is the median over the rounds.

Cases: `closed` sends as fast as answers arrive. Its processor time per request depends on the
number of requests per wake-up, so `held` measures it again at a rate that all servers sustain
(HELD of the slowest server's). `open` is a Poisson load at a fixed rate, with latencies from the
intended start. `threads` is `closed` with 1 and with 2 threads, server and load on both cores,
compared with memcached and Pogocache (the others execute commands on one thread). `idle` is the memory of
10,000 connections that sent one command and then nothing, above that before they were opened.

With `--floor`, servers without a cache (scripts/floor) take part in `closed` at 100 bytes: `floor`
receives and sends for each connection, `floor-rounds` for all that are ready at once, by io_uring.
They are no peers. The summary states the processor time of the caches as a multiple of theirs.

If the load's core is over 85% busy, the load limits the result (`load_core_ratio`); compare the
processor time instead.

Without an argument every case runs, in half an hour with all servers. JSON lines go to stdout, progress
and the summary to stderr.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

IDLE_CONNECTIONS = 10_000
CONNECTIONS_MAX = str(IDLE_CONNECTIONS + 1_000)
KEYS = 100_000
# The share of the slowest server's throughput at which the processor time of a request is compared.
HELD = 0.7
BUSY = 0.85
# Servers that execute commands on all threads, with their numbers of threads.
THREADED = ("sherwood", "other", "memcached", "pogocache")
THREADS = (1, 2)
# Servers without a cache, with their modes. They have values of one size.
FLOORS = {"floor": "epoll", "floor-rounds": "rounds"}
FLOOR_VALUE_BYTES = 100


class Server:
    """A server under test with its resource use."""

    def __init__(self, name, protocol, port, command, core):
        self.name, self.protocol, self.port = name, protocol, port
        self.log = tempfile.TemporaryFile()
        pin = ["taskset", "-c", core] if core else []
        self.process = subprocess.Popen(pin + command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def target(self):
        return f"{self.protocol}://127.0.0.1:{self.port}"

    def wait_until_ready(self):
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.log.seek(0)
                    text = self.log.read().decode(errors="replace")
                    raise SystemExit(f"{self.name} did not start on port {self.port}:\n{text}") from None
                time.sleep(0.05)

    def cpu_s(self):
        """Processor time of all its threads, seconds."""
        total, tasks = 0, f"/proc/{self.process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/schedstat", encoding="ascii") as stat:
                total += int(stat.read().split()[0])
        return total / 1e9

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def ask_once(self):
        """Opens a connection, asks for a missing key and reads the answer."""
        connection = socket.create_connection(("127.0.0.1", self.port), 10)
        asked, answered = (b"get none\r\n", b"END\r\n") if self.protocol == "memcached" else (b"GET none\r\n", b"$-1\r\n")
        connection.sendall(asked)
        answer = b""
        while len(answer) < len(answered):
            answer += connection.recv(64) or sys.exit(f"{self.name} closed a connection")
        if answer != answered:
            raise SystemExit(f"{self.name} answered {answer!r}")
        return connection

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def version(command):
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    return (output.stdout + output.stderr).strip().split("\n")[0]


def sherwood_command(options, protocol, threads, port):
    command = [options.sherwood, "serve", "--memory", f"{options.memory_mib}MiB", "--admin", "off", "--threads", str(threads)]
    command += ["--max-connections", CONNECTIONS_MAX]
    return command + [f"--{protocol}", f"127.0.0.1:{port}"] + options.sherwood_flags.split()


def redis_command(binary, port, threads, memory_mib):
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]
    command += ["--maxclients", CONNECTIONS_MAX]
    return command + ["--maxmemory", f"{memory_mib}mb", "--maxmemory-policy", "allkeys-lru", "--io-threads", str(threads)]


def memcached_command(binary, port, threads, memory_mib):
    user = ["-u", "nobody"] if os.getuid() == 0 else []
    command = [binary, "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", str(memory_mib)]
    return command + ["-t", str(threads), "-c", CONNECTIONS_MAX, *user]


def pogocache_command(binary, port, threads, memory_mib):
    """Returns the command of a server of both protocols, which uses io_uring where it is allowed."""
    command = [binary, "-h", "127.0.0.1", "-p", str(port), "--threads", str(threads), "--maxconns", CONNECTIONS_MAX]
    return command + ["--maxmemory", f"{memory_mib}mb", "--evict", "yes"]


def floor_commands(options):
    """Returns the floors as servers to start."""
    if not options.floor:
        return []

    def command(mode):
        return lambda binary, port, *_: [binary, mode, f"127.0.0.1:{port}"]

    return [(name, "memcached", options.floor, command(mode)) for name, mode in FLOORS.items()]


def add_binaries(parser):
    """Adds the options for the paths of the servers."""
    environment = os.environ.get
    parser.add_argument("--sherwood", default=environment("SHERWOOD", "target/release/sherwood"), help="the binary")
    parser.add_argument("--other", default=None, help="another sherwood to compare with, such as an older one")
    parser.add_argument("--memcached", default=environment("MEMCACHED", "memcached"))
    parser.add_argument("--redis", default=environment("REDIS", "redis-server"))
    parser.add_argument("--valkey", default=environment("VALKEY", "valkey-server"))
    parser.add_argument("--memory-mib", type=int, default=1024, help="that each server may hold [default: %(default)s]")


def add_servers(parser):
    """Adds the options that select servers."""
    add_binaries(parser)
    parser.add_argument("--pogocache", default=os.environ.get("POGOCACHE", "pogocache"))
    parser.add_argument("--sherwood-flags", default="", help="more flags of `sherwood serve`")
    names = "sherwood,other,memcached,pogocache,sherwood-redis,pogocache-redis,redis,valkey"
    parser.add_argument("--servers", type=lambda names: names.split(","), default=None, help=f"only these: {names}")


def start_servers(options, threads, core, only=None, floors=()):
    """Returns the installed servers, or those in `only`, and the floors."""
    wanted = [("sherwood", "memcached", options.sherwood, sherwood_command)]
    if options.other:
        wanted.append(("other", "memcached", options.other, None))
    wanted.append(("memcached", "memcached", options.memcached, memcached_command))
    wanted.append(("pogocache", "memcached", options.pogocache, pogocache_command))
    wanted.append(("sherwood-redis", "redis", options.sherwood, sherwood_command))
    wanted.append(("pogocache-redis", "redis", options.pogocache, pogocache_command))
    wanted += [("redis", "redis", options.redis, redis_command), ("valkey", "redis", options.valkey, redis_command)]
    wanted += floors
    servers = []
    for name, protocol, binary, command in wanted:
        if any(names is not None and name not in names for names in (only, options.servers)):
            continue
        if not shutil.which(binary):
            print(f"peers: without {name}: there is no `{binary}`", file=sys.stderr)
            continue
        port = free_port()
        if command is sherwood_command:
            line = sherwood_command(options, protocol, threads, port)
        elif command is None:
            line = [binary, *sherwood_command(options, protocol, threads, port)[1:]]
        else:
            line = command(binary, port, threads, options.memory_mib)
        servers.append(Server(name, protocol, port, line, core))
        servers[-1].wait_until_ready()
    return servers


def load(options, server, core, *arguments, keys=KEYS):
    """Runs the load and returns its report, with the share of a core that the load used."""
    pin = ["taskset", "-c", core] if core else []
    command = [*pin, options.load, "load", "--target", server.target(), "--keys", str(keys), "--key-size", "20", "--json"]
    before = os.times()
    ran = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    after = os.times()
    if ran.returncode != 0:
        raise SystemExit(f"the load on {server.name} failed:\n{' '.join(command)}\n{ran.stderr}{ran.stdout}")
    report = json.loads(ran.stdout)
    used = after.children_user + after.children_system - before.children_user - before.children_system
    report["load_core_ratio"] = used / report["duration_s"]
    return report


def fill(options, server, core, value_bytes):
    """Sets nearly every key: 8 times as many sets as keys leave 0.03% out."""
    load(
        options, server, core, "--zipf", "0", "--value-size", str(value_bytes), "--get-ratio", "0", "--ops", str(8 * KEYS),
        "--pipeline", "64", "--connections", "4",
    )


def measure(options, server, core, case, *arguments):
    cpu_s = server.cpu_s()
    report = load(
        options, server, core, "--connections", str(options.connections), "--zipf", "0.99", "--get-ratio",
        str(options.get_ratio), "--value-size", str(case["value_bytes"]), "--duration",
        f"{round(options.seconds * 1000)}ms", *arguments,
    )
    cpu_s = server.cpu_s() - cpu_s
    latency = report["latency_us"]
    return {
        **case,
        "server": server.name,
        "protocol": server.protocol,
        "connections": options.connections,
        "get_ratio": options.get_ratio,
        "requests_per_s": round(report["ops_per_s"]),
        "server_cpu_us": round(cpu_s * 1e6 / report["ops"], 3),
        "server_core_ratio": round(cpu_s / report["duration_s"], 3),
        "load_core_ratio": round(report["load_core_ratio"], 3),
        "p50_us": latency["p50"],
        "p99_us": latency["p99"],
        "p99_9_us": latency["p99_9"],
        "late_p99_us": report["late_p99_us"],
        "hit_ratio": round(report["hit_ratio"], 5),
        "errors": report["errors"],
    }


def rounds(options, servers, core, case, *arguments):
    """Yields every server once per round, starting with another one each time."""
    found = {server.name: [] for server in servers}
    for number in range(options.rounds):
        first = number % len(servers)
        for server in servers[first:] + servers[:first]:
            line = {"round": number, **measure(options, server, core, case, *arguments)}
            print(json.dumps(line), flush=True)
            found[server.name].append(line)
    summary({**case, "connections": options.connections, "get_ratio": options.get_ratio}, found)
    return found


def median(lines, field):
    values = [line[field] for line in lines if line[field] is not None]
    return statistics.median(values) if values else float("nan")


def summary(case, found):
    """Prints medians, and compares sherwood with the best peer of its protocol and of all."""
    words = ", ".join(f"{name} {value}" for name, value in case.items() if name != "case")
    print(f"\n{case['case']}: {words}", file=sys.stderr)
    head = f"  {'':<16}{'req/s':>10}{'cpu µs':>9}{'p50':>8}{'p99':>8}{'p99.9':>9}{'server':>8}{'load':>7}"
    print(head, file=sys.stderr)
    for name, lines in found.items():
        busy = median(lines, "load_core_ratio")
        errors = sum(line["errors"] for line in lines)
        note = (" (load busy)" if busy > BUSY else "") + (f" ERRORS {errors}" if errors else "")
        print(
            f"  {name:<16}{median(lines, 'requests_per_s'):>10.0f}{median(lines, 'server_cpu_us'):>9.3f}"
            f"{median(lines, 'p50_us'):>8.0f}{median(lines, 'p99_us'):>8.0f}{median(lines, 'p99_9_us'):>9.0f}"
            f"{median(lines, 'server_core_ratio'):>8.2f}{busy:>7.2f}{note}",
            file=sys.stderr,
        )
    peers = [name for name in found if not name.startswith("sherwood") and name not in FLOORS]
    for ours in (name for name in found if name.startswith("sherwood")):
        spoken = found[ours][0]["protocol"]
        alike = [name for name in peers if found[name][0]["protocol"] == spoken]
        beside(found, ours, alike, f"the best peer that speaks {spoken}")
        if alike != peers:
            beside(found, ours, peers, "the best peer")
    for floor in (name for name in found if name in FLOORS):
        over(found, floor)


def beside(found, ours, peers, words):
    """Formats a comparison of one of our servers with the best of these peers for each figure."""
    if not peers:
        return
    ratios = {
        "throughput": median(found[ours], "requests_per_s") / max(median(found[name], "requests_per_s") for name in peers),
        "requests a cpu second": min(median(found[name], "server_cpu_us") for name in peers)
        / median(found[ours], "server_cpu_us"),
        "p99": median(found[ours], "p99_us") / min(median(found[name], "p99_us") for name in peers),
        "p99.9": median(found[ours], "p99_9_us") / min(median(found[name], "p99_9_us") for name in peers),
    }
    figures = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in ratios.items())
    print(f"  {ours} beside {words}: {figures}", file=sys.stderr)


def over(found, floor):
    """Prints the processor time of the caches that speak a floor's protocol, as a multiple of the floor's."""
    spoken = found[floor][0]["protocol"]
    caches = [name for name in found if name not in FLOORS and found[name][0]["protocol"] == spoken]
    ratio = lambda name: median(found[name], "server_cpu_us") / median(found[floor], "server_cpu_us")
    figures = ", ".join(f"{name} {ratio(name):.2f}x" for name in caches)
    if figures:
        print(f"  processor time over {floor}: {figures}", file=sys.stderr)


def closed(options, started, core, depths):
    for value_bytes in (int(size) for size in options.values.split(",")):
        servers = [server for server in started if server.name not in FLOORS or value_bytes == FLOOR_VALUE_BYTES]
        if not servers:
            continue
        for server in servers:
            fill(options, server, core, value_bytes)
        for depth in depths:
            case = {"case": "closed", "value_bytes": value_bytes, "depth": depth}
            found = rounds(options, servers, core, case, "--closed", "--pipeline", str(depth))
            rate = round(HELD * min(median(lines, "requests_per_s") for lines in found.values()))
            case = {"case": "held", "value_bytes": value_bytes, "depth": depth, "rate": rate}
            rounds(options, servers, core, case, "--rate", str(rate), "--pipeline", str(depth))


def opened(options, servers, core):
    for server in servers:
        fill(options, server, core, 100)
    for rate in (int(rate) for rate in options.rates.split(",")):
        case = {"case": "open", "value_bytes": 100, "rate": rate}
        rounds(options, servers, core, case, "--rate", str(rate), "--pipeline", "16")


def threads(options, servers, count, depths):
    for server in servers:
        fill(options, server, None, 100)
    for depth in depths:
        case = {"case": "threads", "threads": count, "value_bytes": 100, "depth": depth}
        rounds(options, servers, None, case, "--closed", "--pipeline", str(depth))


def idle(servers):
    """Opens connections that send one command and then nothing."""
    count = min(IDLE_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    print(f"\nidle: {count} connections that have asked once", file=sys.stderr)
    for server in servers:
        server.ask_once().close()
        before = server.resident_bytes()
        connections = [server.ask_once() for _ in range(count)]
        taken = server.resident_bytes() - before
        line = {"case": "idle", "server": server.name, "connections": count, "resident_bytes": taken}
        print(json.dumps(line), flush=True)
        print(f"  {server.name:<16}{taken / count:>10.0f} bytes a connection, {taken >> 20} MiB in all", file=sys.stderr)
        for connection in connections:
            connection.close()


def with_servers(options, threads_of_each, core, work, only=None, floors=()):
    servers = []
    try:
        servers = start_servers(options, threads_of_each, core, only, floors)
        work(servers)
    finally:
        for server in servers:
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    environment = os.environ.get
    parser.add_argument("cases", nargs="*", choices=["closed", "open", "threads", "idle", []], help="which cases [default: all]")
    add_servers(parser)
    parser.add_argument("--floor", default=environment("FLOOR"), help="the binary of scripts/floor [default: without floors]")
    parser.add_argument("--load", default=None, help="the binary that makes the load [default: --sherwood]")
    parser.add_argument("--rounds", type=int, default=int(environment("ROUNDS", "5")))
    parser.add_argument("--seconds", type=float, default=3, help="of one measurement")
    parser.add_argument("--server-core", default=environment("SERVER_CORE", "0"))
    parser.add_argument("--load-core", default=environment("LOAD_CORE", "1"))
    parser.add_argument("--connections", type=int, default=50, help="of the load [default: %(default)s]")
    parser.add_argument("--get-ratio", type=float, default=0.95, help="share of gets, the others are sets [default: %(default)s]")
    parser.add_argument("--values", default="100,4096", help="sizes of values in the closed loop")
    parser.add_argument("--depths", default="1,16", help="operations under way on a connection in closed loops")
    parser.add_argument("--rates", default="20000,50000,80000", help="of the open loop, requests a second")
    options = parser.parse_args()
    options.load = options.load or options.sherwood
    # Here and in the servers, of which some do not raise their limit themselves.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    cases = options.cases or ["closed", "open", "threads", "idle"]
    named = [(name, "--version") for name in ("pogocache", "redis", "valkey", "sherwood")]
    named.insert(0, ("memcached", "-V"))
    for name, flag in named:
        binary = getattr(options, name)
        if shutil.which(binary):
            print(f"peers: {name} is {binary}: {version([binary, flag])}", file=sys.stderr)
    depths = [int(depth) for depth in options.depths.split(",")]
    if "closed" in cases:
        work = lambda servers: closed(options, servers, options.load_core, depths)
        with_servers(options, 1, options.server_core, work, floors=floor_commands(options))
    if "open" in cases:
        with_servers(options, 1, options.server_core, lambda servers: opened(options, servers, options.load_core))
    if "threads" in cases:
        for count in THREADS:
            with_servers(options, count, None, lambda servers, count=count: threads(options, servers, count, depths), THREADED)
    if "idle" in cases:
        with_servers(options, 1, None, idle)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
