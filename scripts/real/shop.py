"""Shared parts of the experiments with real backends: requests, tables, the node, observations.

The accesses of the orm-busy trace are keys of a MariaDB table, a PostgreSQL table and an HTTP
service, by their type; ten consecutive accesses form a request. A database query reads the item
and averages its reviews, so that a miss costs more than the round trip.
"""

import json
import lzma
import os
import signal
import statistics
import struct
import sys
import threading
import time
import urllib.request

import servers

HERE = os.path.dirname(os.path.abspath(__file__))
# Absolute, since a server starts in a folder of its own.
SHERWOOD = os.path.abspath(os.environ.get("SHERWOOD", os.path.join(HERE, "../../target/release/sherwood")))
TRACE = os.path.join(HERE, "../../crates/workload/data/cache2k/orm-busy.trace.xz")
BACKENDS = ("mariadb", "postgres", "http")
QUERIES = 10
WINDOW_S = 10
VALUE_BYTES = 1000


def accesses(count):
    """The first accesses of the trace: a type in the upper five bits, an object in the others."""
    words = lzma.open(TRACE).read()
    words = struct.unpack(f">{len(words) // 4}I", words)
    if count > len(words):
        raise SystemExit(f"{count} accesses are needed, and the trace has {len(words)}: take a lower rate or less time")
    return words[:count]


def places_of_types(words, backends):
    """Assigns object types to backends: the busiest first, each to the least loaded backend so far."""
    counts = {}
    for word in words:
        counts[word >> 27] = counts.get(word >> 27, 0) + 1
    load, places = dict.fromkeys(backends, 0), {}
    for kind, count in sorted(counts.items(), key=lambda item: -item[1]):
        places[kind] = min(load, key=load.get)
        load[places[kind]] += count
    return places


def key(word):
    return f"t{word >> 27:02d}-{word & 0x7FFFFFF:08x}"


def requests(words, places):
    """Ten accesses at a time, as the distinct keys that each backend is asked for."""
    for at in range(0, len(words) - QUERIES + 1, QUERIES):
        queries = {}
        for word in words[at:at + QUERIES]:
            keys = queries.setdefault(places[word >> 27], [])
            if key(word) not in keys:
                keys.append(key(word))
        yield queries


class HttpService(servers.Server):
    def __init__(self, directory, name="http", value_bytes=VALUE_BYTES):
        super().__init__(directory, name)
        self.value_bytes = value_bytes

    def command(self):
        return [sys.executable, os.path.join(HERE, "http_service.py"), str(self.port), str(self.value_bytes)]


class Shop:
    """The three backends, filled with what the accesses ask for. A context: they end with it."""

    def __init__(self, directory, words):
        self.directory = directory
        self.places = places_of_types(words, BACKENDS)
        self.servers = {"mariadb": servers.MariaDb(directory), "postgres": servers.Postgres(directory), "http": HttpService(directory)}
        self.words = words

    def __enter__(self):
        try:
            for server in self.servers.values():
                server.start()
            self.fill()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for server in self.servers.values():
            server.stop()

    def fill(self):
        rows = {name: [] for name in BACKENDS}
        for word in sorted(set(self.words)):
            rows[self.places[word >> 27]].append(f"('{key(word)}', '{word:08x}{'.' * (VALUE_BYTES - 8)}')")
        mariadb, postgres = self.servers["mariadb"], self.servers["postgres"]
        mariadb.sql("CREATE DATABASE shop; USE shop;"
                    "CREATE TABLE items (k VARCHAR(32) PRIMARY KEY, v VARBINARY(4096)) ENGINE=InnoDB;"
                    "CREATE TABLE reviews (item INT, stars INT, INDEX (item)) ENGINE=InnoDB;"
                    "INSERT INTO reviews SELECT seq % 1000, seq % 5 + 1 FROM seq_1_to_200000;"
                    "CREATE USER 'shop'@'127.0.0.1' IDENTIFIED BY 'shop'; GRANT SELECT ON shop.* TO 'shop'@'127.0.0.1';")
        postgres.sql("CREATE TABLE items (k text PRIMARY KEY, v text NOT NULL);"
                     "CREATE TABLE reviews AS SELECT n % 1000 AS item, n % 5 + 1 AS stars FROM generate_series(1, 200000) AS n;"
                     "CREATE INDEX ON reviews (item);")
        for server, name, table in ((mariadb, "mariadb", "shop.items"), (postgres, "postgres", "items")):
            for at in range(0, len(rows[name]), 1000):
                server.sql(f"INSERT INTO {table} VALUES {','.join(rows[name][at:at + 1000])};")
        postgres.sql("ANALYZE;")

    def configuration(self, file_name, cache, bound_ms, control="", backend=""):
        """A node's configuration for these backends, with further lines of [control] and of each [[backend]]."""
        path, secret = (os.path.join(self.directory, name) for name in (file_name, "password"))
        with open(secret, "w", encoding="ascii") as file:
            file.write("shop\n")
        os.chmod(secret, 0o600)
        port = {name: server.port for name, server in self.servers.items()}
        with open(path, "w", encoding="ascii") as file:
            file.write(f"""
[memory]
total = "{cache}"
{promise_and_control(bound_ms)}
{control}
[[backend]]
name = "mariadb"
store = {{ kind = "mysql", address = "127.0.0.1:{port["mariadb"]}", user = "shop", password_file = "{secret}", database = "shop", query = "SELECT k, CONCAT(v, (SELECT AVG(stars) FROM reviews WHERE item = CRC32(k) % 1000)) FROM items WHERE k IN (:keys)" }}
{backend}
[[backend]]
name = "postgres"
store = {{ kind = "postgres", address = "127.0.0.1:{port["postgres"]}", user = "postgres", database = "postgres", query = "SELECT k, v || (SELECT avg(stars) FROM reviews WHERE item = abs(hashtext(k)) % 1000) FROM items WHERE k IN (:keys)" }}
{backend}
[[backend]]
name = "http"
store = {{ kind = "http", url = "http://127.0.0.1:{port["http"]}/items/{{key}}" }}
{backend}
""")
        return path


def promise_and_control(bound_ms):
    """The paper's Δ of a second; the window in which P99 and blocking counts are taken is ten."""
    return f"""[slo]
percentile = 99.0
bound = "{bound_ms}ms"
window = "{WINDOW_S}s"
observe = "1s"
[control]
delta = "1s"
rbc_window = "{WINDOW_S}s\""""


class Node(servers.Server):
    def __init__(self, directory, name, config, policy):
        super().__init__(directory, name)
        self.config, self.policy = config, policy

    def command(self):
        return [SHERWOOD, "serve", "--config", self.config, "--policy", self.policy, "--admin", f"127.0.0.1:{self.port}"]

    def answers(self):
        with open(os.path.join(self.directory, "log"), "rb") as log:
            return any(line.startswith(b"ready") for line in log)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            return json.load(answer)

    def allocated_bytes(self):
        return {partition["backend"]: partition["allocated_bytes"] for partition in self.get("/v1/partitions")}


class Watch:
    """The request P99 of the window, as the node observes it once a second. A context."""

    def __init__(self, node):
        self.node, self.ended, self.seen = node, threading.Event(), []
        self.thread = threading.Thread(target=self.follow)

    def __enter__(self):
        self.began = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def follow(self):
        while not self.ended.wait(1):
            p99 = self.node.get("/v1/slo")["current_ms"]
            if p99 is not None:
                self.seen.append((time.monotonic() - self.began, p99))

    def after(self, at):
        return [p99 for seen, p99 in self.seen if seen >= at]


def observations(p99_ms, bound_ms):
    """Returns the figures by which a run is judged."""
    return {"violations": sum(p99 > bound_ms for p99 in p99_ms) / len(p99_ms), "p99_median_ms": statistics.median(p99_ms),
            "p99_max_ms": max(p99_ms)}


def in_turn(rounds, variants, run):
    """Runs every variant in each round, first one and then the other first, and prints a line of JSON for each run. SIGTERM ends
    the servers too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    results = []
    for round_ in range(rounds):
        for variant in variants if round_ % 2 == 0 else reversed(variants):
            results.append({"round": round_, **run(f"{variant}-{round_}", variant)})
            print(json.dumps(results[-1]), flush=True)
    return results


def summary(results, name, variants, fields):
    """Medians to stderr, and in how many rounds the second was lower."""
    for field in fields:
        of = {v: [result[field] for result in results if result[name] == v] for v in variants}
        if any(value is None for values in of.values() for value in values):
            continue
        first, second = (of[v] for v in variants)
        lower = sum(b < a for a, b in zip(first, second))
        print(f"{field}: {variants[0]} {statistics.median(first):.3f}, {variants[1]} {statistics.median(second):.3f}; "
              f"the second lower in {lower} of {len(second)}", file=sys.stderr)
