"""Servers of a replicated store, each with faults of its own, and the node in front of them."""

import http.client
import json
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../real"))
import servers

KINDS = {
    "redis": servers.Redis,
    "memcached": servers.Memcached,
    "zookeeper": servers.Zookeeper,
    "cassandra": servers.Cassandra,
}
ALONE = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
# Longest wait for duplicates to be read again.
SETTLE_S = 180


def start_servers(kind, directory, count, stores=("items",)):
    """Starts servers that are ready for duplicates of these stores."""
    started = [KINDS[kind](directory, f"{kind}-{number}") for number in range(count)]
    try:
        for server in started:
            server.launch()
        for server in started:
            server.wait()
            if kind == "cassandra":
                server.cql(f"CREATE KEYSPACE zoolander WITH replication = {ALONE}",
                           *(f"CREATE TABLE zoolander.{store} (key blob PRIMARY KEY, value blob)" for store in stores))
    except BaseException:
        stop_all(started)
        raise
    return started


def stop_all(started):
    for server in started:
        if server.process and server.process.poll() is None:
            # One that is stopped would not end.
            server.process.send_signal(signal.SIGCONT)
        server.stop()


def replica(kind, server, store):
    """Returns the entry of a server in `replicas`, with a place of its own for each store."""
    place = {"zookeeper": f'root = "/{store}"', "cassandra": f'keyspace = "zoolander", table = "{store}"'}
    place = place.get(kind, f'key_prefix = "{store}:"')
    return f'{{ kind = "{kind}", address = "127.0.0.1:{server.port}", answer_timeout = "750ms", {place} }}'


def backend(kind, name, own, options):
    """Returns a backend of these servers, with further keys in `options`."""
    replicas = ",\n  ".join(replica(kind, server, name) for server in own)
    return f'[[backend]]\nname = "{name}"\ntimeout = "1s"\nreplicas = [\n  {replicas},\n]\n{options}\n'


class Node(servers.Server):
    """A node with the given backends and tables, and its gateway on `port`."""

    def __init__(self, program, directory, name, text):
        super().__init__(directory, name)
        self.program, self.file = os.path.abspath(program), os.path.join(self.directory, "node.toml")
        self.gateway = Connection(self.port)
        servers.write(self.file, f'[control]\npolicy = "static"\n[admin]\nbind = "127.0.0.1:{self.port}"\n{text}')

    def command(self):
        return [self.program, "serve", "--config", self.file]

    def stores(self):
        return {store["backend"]: store for store in json.loads(self.get("/v1/stores"))}

    def get(self, path):
        # By a new connection, since the node ends one that is idle while a server starts.
        status, text = Connection(self.port).ask("GET", path)
        if status != 200:
            raise SystemExit(f"GET {path}: {status} {text}")
        return text

    def wait_until_settled(self, lag_max=float("inf")):
        """Waits until every duplicate of every store is read, and lacks at most so many changes."""
        end = time.monotonic() + SETTLE_S
        while not all(is_settled(store, lag_max) for store in self.stores().values()):
            if time.monotonic() > end:
                raise SystemExit(f"after {SETTLE_S} s not all duplicates are read: {json.dumps(self.stores())}")
            time.sleep(0.05)

    def metric(self, name):
        """Returns the sum of a metric's samples."""
        lines = self.get("/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((name + " ", name + "{")))


def is_settled(store, lag_max):
    return store["settled"] and all(one["state"] == "current" and one["lag"] <= lag_max for one in store["nodes"])


class Connection:
    """A connection to the gateway, which may send back the sessions of its answers."""

    def __init__(self, port, has_session=False):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.has_session, self.session = has_session, None

    def ask(self, method, path, body=None):
        """Returns status and text of the answer; None and the reason if there was none."""
        headers = {"sherwood-session": self.session} if self.session else {}
        try:
            self.connection.request(method, path, body, headers)
            answer = self.connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            return None, str(error)
        if self.has_session:
            self.session = answer.headers.get("sherwood-session", self.session)
        return answer.status, text

    def read(self, store, keys):
        """Returns the results of these keys, or None if there was no answer."""
        status, text = self.ask("POST", "/v1/requests", json.dumps({"queries": [{"backend": store, "keys": keys}]}))
        return json.loads(text)["results"] if status == 200 else None

    def write(self, store, key, value):
        """Puts a value, or removes the key if it is None. Returns outcome and text of the answer."""
        method = "DELETE" if value is None else "PUT"
        status, text = self.ask(method, f"/v1/keys/{store}/{key}", value)
        if status == 204:
            return "acknowledged", text
        try:
            return json.loads(text).get("outcome", "unknown"), text
        except ValueError:
            return "unknown", text


class Interference:
    """Stops and continues a server in slices at random moments, until it is closed."""

    def __init__(self, server, seed, every_s, slice_s):
        self.server, self.random, self.every_s, self.slice_s = server, random.Random(seed), every_s, slice_s
        self.ended, self.thread = threading.Event(), threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended.wait(self.random.expovariate(1 / self.every_s)):
            self.server.process.send_signal(signal.SIGSTOP)
            self.ended.wait(self.random.uniform(*self.slice_s))
            self.server.process.send_signal(signal.SIGCONT)

    def close(self):
        self.ended.set()
        self.thread.join()
