#!/usr/bin/env python3
"""Compares caches resized by a node with the same caches at constant sizes.

There are three memcached and two Redis instances. A small application uses its caches itself: a
request is ten keys of the orm-busy trace, each of one of five HTTP services by its type, looked up
in that service's cache, fetched after a miss, and set. It reports each request's latency and the
service that blocked it (`POST /v1/reports`); the node does the rest. After the warm-up, a control
group limits one service to a few per cent of a core for a while. The policies `static` and
`robinhood` receive the same requests; they alternate in going first.

A JSON line for each run goes to stdout, the summary to stderr.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
import urllib.request

import servers
import shop

SERVICES = ("s1", "s2", "s3", "s4", "s5")
MEMCACHED = SERVICES[:3]
# Most requests in flight; one more counts as failed, so that memory is bounded.
UNDER_WAY_MAX = 2000
# Latency assigned to a failed request.
FAILED_S = 10.0
PERIOD_S = 1.0
POLICIES = ("static", "robinhood")


class Connection:
    """A stream used by one conversation at a time."""

    def __init__(self, port):
        self.port, self.lock, self.streams = port, asyncio.Lock(), None

    async def open(self):
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        return self.streams


class MemcachedClient(Connection):
    async def get(self, keys):
        async with self.lock:
            reader, writer = await self.open()
            writer.write(b"get " + b" ".join(key.encode() for key in keys) + b"\r\n")
            found = {}
            while (line := await reader.readline()) != b"END\r\n":
                _, key, _, length = line.split()[:4]
                found[key.decode()] = (await reader.readexactly(int(length) + 2))[:-2]
            return found

    async def set(self, key, value):
        async with self.lock:
            reader, writer = await self.open()
            writer.write(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value))
            await reader.readline()


class RedisClient(Connection):
    @staticmethod
    def command(*words):
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    async def get(self, keys):
        async with self.lock:
            reader, writer = await self.open()
            writer.write(self.command(b"MGET", *(key.encode() for key in keys)))
            await reader.readline()
            found = {}
            for key in keys:
                length = int((await reader.readline())[1:])
                if length >= 0:
                    found[key] = (await reader.readexactly(length + 2))[:-2]
            return found

    async def set(self, key, value):
        async with self.lock:
            reader, writer = await self.open()
            writer.write(self.command(b"SET", key.encode(), value))
            await reader.readline()


class HttpClient:
    """A few connections to one service, kept open."""

    def __init__(self, port, connections=16):
        self.port, self.free = port, asyncio.Queue()
        for _ in range(connections):
            self.free.put_nowait(None)

    async def get(self, key):
        streams = await self.free.get()
        try:
            reader, writer = streams or await asyncio.open_connection("127.0.0.1", self.port)
            streams = (reader, writer)
            writer.write(f"GET /items/{key} HTTP/1.1\r\nHost: s\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return await reader.readexactly(length)
        finally:
            self.free.put_nowait(streams)


class Application:
    """Requests to several services, each through its own cache."""

    def __init__(self, caches, services):
        self.caches, self.services = caches, services
        self.latencies, self.reports, self.under_way, self.failed = [], [], 0, 0
        self.hits = self.misses = 0

    async def query(self, service, keys):
        found = await self.caches[service].get(keys)
        missing = [key for key in keys if key not in found]
        self.hits, self.misses = self.hits + len(found), self.misses + len(missing)

        async def fetch(key):
            await self.caches[service].set(key, await self.services[service].get(key))

        await asyncio.gather(*(fetch(key) for key in missing))
        return time.monotonic()

    async def request(self, intended, queries):
        names = list(queries)
        if self.under_way >= UNDER_WAY_MAX:
            self.failed += 1
            self.count(FAILED_S, names[0])
            return
        self.under_way += 1
        try:
            ends = await asyncio.gather(*(self.query(name, queries[name]) for name in names))
        finally:
            self.under_way -= 1
        last = max(ends)
        self.count(last - intended, names[ends.index(last)])

    def count(self, latency_s, blocking):
        self.latencies.append((time.monotonic(), latency_s))
        self.reports.append({"latency_us": int(latency_s * 1e6), "blocking": blocking})

    def p99_ms(self, now):
        """Over the window before `now`; older ones are forgotten."""
        self.latencies = [(end, latency) for end, latency in self.latencies if end > now - shop.WINDOW_S]
        if len(self.latencies) < 2:
            return None
        return statistics.quantiles([latency for _, latency in self.latencies], n=100)[98] * 1000

    def take_reports(self):
        reports, self.reports = self.reports, []
        return reports


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=5).close()


async def drive(args, app, node, requests, limited):
    """Sends the requests at random times, reports each second, and slows a service in the middle; the P99 observed each second."""
    loop, tasks, began, observed = asyncio.get_running_loop(), set(), time.monotonic(), []
    draw, due, report_at = random.Random(1), began, began
    phases = [(args.warmup_s, args.ratio), (args.warmup_s + args.slow_s, None)]
    for queries in requests:
        due += draw.expovariate(args.rate if due >= began + args.warmup_s else args.warmup_rate)
        if due > began + args.warmup_s + args.slow_s + args.after_s:
            break
        await asyncio.sleep(max(0, due - time.monotonic()))
        task = asyncio.create_task(app.request(due, queries))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        now = time.monotonic()
        if phases and now - began >= phases[0][0]:
            limited.limit_cpu(phases.pop(0)[1])
        if now >= report_at + PERIOD_S:
            report_at = now
            p99_ms = app.p99_ms(now)
            if now - began >= args.warmup_s and p99_ms is not None:
                observed.append(p99_ms)
            if reports := app.take_reports():
                await loop.run_in_executor(None, post, node.port, "/v1/reports", reports)
    limited.limit_cpu(None)
    await asyncio.gather(*tasks)
    return observed


def configuration(path, args, caches):
    with open(path, "w", encoding="ascii") as file:
        file.write(f"""
[memory]
total = "{args.cache_mib}MiB"
{shop.promise_and_control(args.bound_ms)}
tax = {args.tax}
""")
        for name, cache in caches.items():
            kind = "memcached" if name in MEMCACHED else "redis"
            file.write(f"""[[backend]]
name = "{name}"
[[partition]]
backend = "{name}"
min = "8MiB"
cache = {{ kind = "{kind}", address = "127.0.0.1:{cache.port}" }}
""")


def run(args, directory, words, places, name, policy):
    scratch = os.path.join(directory, name)
    os.makedirs(scratch)
    os.chmod(scratch, 0o755)
    size = args.cache_mib // len(SERVICES)
    services = {service: shop.HttpService(scratch, service, args.value_bytes) for service in SERVICES}
    caches = {service: servers.Memcached(scratch, f"cache-{service}", ["-m", str(size)]) if service in MEMCACHED
              else servers.Redis(scratch, f"cache-{service}", ["--maxmemory", f"{size}mb", "--maxmemory-policy", "allkeys-lru"])
              for service in SERVICES}
    config = os.path.join(scratch, "node.toml")
    configuration(config, args, caches)
    node = shop.Node(scratch, "node", config, policy)
    started = [*services.values(), *caches.values(), node]
    try:
        for server in started:
            server.start()

        async def whole():
            clients = {service: (MemcachedClient if service in MEMCACHED else RedisClient)(caches[service].port) for service in SERVICES}
            app = Application(clients, {service: HttpClient(services[service].port) for service in SERVICES})
            return app, await drive(args, app, node, shop.requests(words, places), services[args.slowed])

        app, observed = asyncio.run(whole())
        return {"policy": policy, **shop.observations(observed, args.bound_ms), "failed": app.failed,
                "hit_ratio": app.hits / (app.hits + app.misses), "bytes_after": node.allocated_bytes()}
    finally:
        for server in reversed(started):
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--policies", default=",".join(POLICIES), help="two of them, or one to choose the other flags by")
    parser.add_argument("--rate", type=float, default=120, help="requests per second, of ten keys each")
    parser.add_argument("--warmup-rate", type=float, default=200, help="the same during the warm-up")
    parser.add_argument("--cache-mib", type=int, default=80, help="of all five caches")
    parser.add_argument("--value-bytes", type=int, default=8000, help="large, since a memcached instance has 8 MiB at least")
    parser.add_argument("--tax", type=float, default=0.05, help="share of its bytes that every partition gives in a step")
    parser.add_argument("--bound-ms", type=int, default=100)
    parser.add_argument("--slowed", choices=SERVICES, default="s1")
    parser.add_argument("--ratio", type=float, default=0.05, help="share of a core that the slowed service keeps")
    parser.add_argument("--warmup-s", type=int, default=50)
    parser.add_argument("--slow-s", type=int, default=80)
    parser.add_argument("--after-s", type=int, default=10)
    args = parser.parse_args()
    policies = args.policies.split(",")
    requests = args.warmup_rate * args.warmup_s + args.rate * (args.slow_s + args.after_s)
    words = shop.accesses(int(requests * shop.QUERIES * 1.1))
    places = shop.places_of_types(words, SERVICES)
    with tempfile.TemporaryDirectory(prefix="sherwood-real-") as directory:
        results = shop.in_turn(args.rounds, policies, lambda name, policy: run(args, directory, words, places, name, policy))
    if len(policies) == 2:
        shop.summary(results, "policy", policies, ("violations", "p99_median_ms", "p99_max_ms", "hit_ratio"))


if __name__ == "__main__":
    main()
