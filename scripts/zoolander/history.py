"""Histories of clients of replicated stores: recorded while they run, and checked afterwards.

A record is a dictionary:

    store, client   names
    has_session     whether the client sends back the sessions that it has had
    kind            "put", "delete" or "read"
    key, number     of a write; the writes of a key have ascending numbers in the order of its only
                    writer, from 1 on. Keys with several writers begin with SHARED, and
                    Porcupine alone checks them
    value           that is written, different from all others; None of a delete
    keys, values    of a read: the values (None: absent; FAILED: no answer) in the order of the keys
    begun, ended    seconds
    outcome         of a write: "acknowledged", "not_done" or "unknown"
    last            true for reads after all faults, which have to reflect all that was acknowledged
"""

import collections
import json
import os
import random
import subprocess
import threading
import time

from stores import Connection

FAILED = "failed"
SHARED = "shared-"
# Values of these keys are not kept by the cache.
FETCHED = "fetched-"
PORCUPINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "porcupine")


class Client(threading.Thread):
    """A client that makes one read or write after the other, and records them."""

    def __init__(self, port, store, name, keys, own, seed, pause_s=0.02, write_ratio=0.4, has_session=True):
        super().__init__(name=name)
        self.connection = Connection(port, has_session)
        self.store, self.keys, self.own, self.pause_s, self.write_ratio = store, keys, own, pause_s, write_ratio
        self.random, self.numbers = random.Random(seed), collections.Counter()
        self.records, self.refusals, self.ended = [], collections.Counter(), threading.Event()

    def run(self):
        while not self.ended.wait(self.random.expovariate(1 / self.pause_s)):
            if self.random.random() < self.write_ratio:
                self.write(self.random.choice(self.own), self.random.random() < 1 / 6)
            else:
                self.read(self.random.sample(self.keys, self.random.choice((1, 1, 2))))

    def write(self, key, removes):
        self.numbers[key] += 1
        number = self.numbers[key]
        value = None if removes else f"{key} {number} {self.name}"
        begun = time.monotonic()
        outcome, text = self.connection.write(self.store, key, value)
        if outcome != "acknowledged":
            self.refusals[f"{outcome}: {text[:160]}"] += 1
        self.add("delete" if removes else "put", begun, key=key, number=number, value=value, outcome=outcome)

    def read(self, keys, last=False):
        begun = time.monotonic()
        results = self.connection.read(self.store, keys)
        self.add("read", begun, keys=keys, values=[seen(result) for result in results or [None] * len(keys)], last=last)

    def add(self, kind, begun, **fields):
        ended = time.monotonic()
        own = {"store": self.store, "client": self.name, "has_session": self.connection.has_session}
        self.records.append({**own, "kind": kind, "begun": begun, "ended": ended, **fields})


def stop(clients):
    """Waits until clients have ended."""
    for client in clients:
        client.ended.set()
    for client in clients:
        if client.is_alive():
            client.join()


def seen(result):
    if result and result["status"] in ("hit", "miss", "stale"):
        return result["value"]
    return None if result and result["status"] == "not_found" else FAILED


def check(records, ack, consistency):
    """Returns what contradicts the declared consistency in one store's records, as sentences."""
    checker = Checker(ack, consistency)
    ordered = [(record["begun"], 1, record) for record in records] + [(record["ended"], 0, record) for record in records]
    for _, begins, record in sorted(ordered, key=lambda event: event[:2]):
        (checker.begin if begins else checker.end)(record)
    return checker.violations


class Checker:
    """Follows a history in the order of time.

    A view is a counter with, for each key, the number of the last write that it includes; the union
    of two includes what either does.
    """

    def __init__(self, ack, consistency):
        self.ack, self.consistency = ack, consistency
        self.writes, self.values, self.acknowledged = collections.defaultdict(list), {}, collections.Counter()
        # The view of each client's session; for each read under way, what it has to include.
        self.sessions, self.least = collections.defaultdict(collections.Counter), {}
        self.violations = []

    def begin(self, record):
        session = self.sessions[record["client"]] if record["has_session"] else collections.Counter()
        if record["kind"] == "read":
            required = collections.Counter() if self.consistency == "eventual" else session
            if self.ack == "all" or record["last"]:
                required = required | self.acknowledged
            self.least[id(record)] = required
        elif not record["key"].startswith(SHARED):
            record["view"] = session | collections.Counter({record["key"]: record["number"]})
            self.writes[record["key"]].append(record)
            self.values[record["value"]] = record

    def end(self, record):
        if record["kind"] == "read":
            least = self.least.pop(id(record))
            for key, value in zip(record["keys"], record["values"]):
                if value != FAILED and not key.startswith(SHARED):
                    self.end_read(record, key, value, least[key])
        elif record["outcome"] == "acknowledged" and "view" in record:
            self.acknowledged |= collections.Counter({record["key"]: record["number"]})
            self.sessions[record["client"]] = self.sessions[record["client"]] | record["view"]

    def end_read(self, record, key, value, least):
        write, reason = self.explain(record, key, value, least)
        if reason:
            at = f"{record['store']}: read of {key} by {record['client']} at {record['begun']:.3f} s"
            self.violations.append(f"{at} returned {value!r}, but {reason}")
        elif write and self.consistency == "causal":
            self.sessions[record["client"]] = self.sessions[record["client"]] | write["view"]

    def explain(self, record, key, value, least):
        """Returns the write that a read has seen and what is wrong about it; None if there is none.

        Of the removals that explain an absence, the first counts.
        """
        writes = self.writes[key]
        is_void = lambda write: write["outcome"] == "not_done" and write["ended"] < record["begun"]
        while least and is_void(writes[least - 1]):
            least -= 1
        if value is None:
            later = writes[least - 1 :] if least else []
            removal = next((write for write in later if write["kind"] == "delete" and not is_void(write)), None)
            return removal, f"write {least} is included, and nothing removed it" if least and not removal else None
        write = self.values.get(value)
        if not write or write["key"] != key:
            return None, "it was never written to this key"
        if is_void(write):
            return None, "it was reported as not done"
        return write, f"write {least} is included" if write["number"] < least else None


def check_with_porcupine(records, directory):
    """Has Porcupine check that each session sees each key as a register; returns what it finds."""
    program, path = os.path.join(directory, "porcupine"), os.path.join(directory, "history.json")
    if not os.path.exists(program):
        subprocess.run(["go", "build", "-o", program, "."], cwd=PORCUPINE, check=True)
    with open(path, "w", encoding="utf-8") as file:
        for record in records:
            file.writelines(json.dumps(operation) + "\n" for operation in operations(record))
    ran = subprocess.run([program, path], capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        raise SystemExit(f"Porcupine ended with {ran.returncode}: {ran.stderr}")
    return ran.stdout.splitlines()


def operations(record):
    """Yields a record as operations on single keys for Porcupine, with times in nanoseconds."""
    times = {"begun": int(record["begun"] * 1e9), "ended": int(record["ended"] * 1e9), "client": record["client"]}
    if record["kind"] == "read":
        for key, value in zip(record["keys"], record["values"]):
            if value != FAILED and record["has_session"]:
                yield {**times, "kind": "read", "key": key, "value": value or ""}
    elif record["outcome"] != "not_done":
        unknown = record["outcome"] == "unknown"
        yield {**times, "kind": "write", "key": record["key"], "value": record["value"] or "", "unknown": unknown}
