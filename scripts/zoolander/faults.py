"""Servers are killed and paused in turn under reads and writes, and the histories are checked."""

import collections
import os
import random
import signal
import subprocess
import sys
import time

import history
import stores

# Of each store: what acknowledges, the consistency, and further keys.
STORES = {
    "all": ("all", "causal", 'dispatch = { copies = "hedge" }'),
    "majority": ("majority", "read-your-writes", ""),
    "first": ("first", "causal", 'log = {{ path = "{directory}/log" }}\ndispatch = {{ copies = "fixed" }}'),
}
CLIENTS = 4
# Keys with several writers, in the store whose reads need no session.
SHARED = (f"{history.SHARED}kept", f"{history.SHARED}{history.FETCHED}")
NOT_KEPT = f'ttl_rules = [{{ prefix = "{history.FETCHED}", ttl = "0s" }}, {{ prefix = "{SHARED[1]}", ttl = "0s" }}]'
PAUSE_S, DOWN_S = (0.05, 3), (0, 2)


def configuration(kind, own, partitions, duplicates, directory):
    text = ""
    for name, (ack, consistency, more) in STORES.items():
        layout = f"partitions = {partitions}\nduplicates = {duplicates}"
        rules = f'ack = "{ack}"\nconsistency = "{consistency}"\n{NOT_KEPT}'
        more = more.format(directory=directory) if "{directory}" in more else more
        text += stores.backend(kind, name, own, f"{layout}\n{rules}\n{more}")
    return text


def clients_of(port, store, seed):
    """Returns clients of a store, with two keys of their own; one has no session."""
    owned = [[f"kept-{number}", f"{history.FETCHED}{number}"] for number in range(CLIENTS)]
    shared = list(SHARED) if store == "all" else []
    keys = [key for keys in owned for key in keys] + shared
    return [
        history.Client(port, store, f"{store}-{number}", keys, own + shared, f"{seed} {store} {number}", has_session=number > 0)
        for number, own in enumerate(owned)
    ]


def disturb(server, kills, draw):
    """Kills a server, which may lose all it had, and starts it again; or pauses it."""
    if kills:
        server.process.kill()
        server.process.wait()
        time.sleep(draw.uniform(*DOWN_S))
        server.start()
    else:
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(draw.uniform(*PAUSE_S))
        server.process.send_signal(signal.SIGCONT)


def contradictions(clients, directory):
    """Returns what the records of all clients contradict."""
    found = []
    for store, (ack, consistency, _) in STORES.items():
        records = [record for client in clients if client.store == store for record in client.records]
        if not any(record.get("outcome") == "acknowledged" for record in records):
            found.append(f"{store}: no write was acknowledged")
        found += history.check(records, ack, consistency)
        if ack == "all":
            found += history.check_with_porcupine(records, directory)
    return found


def differences(kind, own, duplicates, clients):
    """Returns the Redis servers that differ from the first duplicate of their partition."""
    names = sorted({f"{client.store}:{key}" for client in clients for key in client.keys})
    command = lambda server: ["redis-cli", "-p", str(server.port), "MGET", *names]
    values = [subprocess.run(command(server), capture_output=True, check=True).stdout for server in own] if kind == "redis" else []
    return [f"{own[at].name} differs" for at in range(len(values)) if values[at] != values[at - at % duplicates]]


def show(clients, faults, figures):
    print(f"faults: {', '.join(f'{count} {name}' for name, count in sorted(faults.items()))}; {figures}")
    for store in STORES:
        own = [client for client in clients if client.store == store]
        records = [record for client in own for record in client.records]
        ends = collections.Counter(record.get("outcome", "reads") for record in records)
        failed = sum(record["kind"] == "read" and history.FAILED in record["values"] for record in records)
        counts = ", ".join(f"{ends[name]} {name}" for name in ("acknowledged", "unknown", "not_done", "reads"))
        print(f"{store:10} {counts}, {failed} of them failed")
        refusals = sum((client.refusals for client in own), collections.Counter())
        for text, count in refusals.most_common(3):
            print(f"{'':10} {count} × {text}", file=sys.stderr)


def run(options, kind, directory):
    """Prints the counts and returns the contradictions that were found."""
    duplicates = options.duplicates or (2 if kind == "cassandra" else 3)
    own = stores.start_servers(kind, directory, options.partitions * duplicates, STORES)
    text = configuration(kind, own, options.partitions, duplicates, directory)
    node, draw = stores.Node(options.node, directory, "node", text), random.Random(options.seed)
    clients, faults = [], collections.Counter()
    try:
        node.start()
        node.wait_until_settled()
        clients = [client for store in STORES for client in clients_of(node.port, store, options.seed)]
        for client in clients:
            client.start()
        end = time.monotonic() + options.seconds
        while not faults or time.monotonic() < end:
            for kills, server in draw.sample([(kills, server) for kills in (True, False) for server in own], 2 * len(own)):
                disturb(server, kills, draw)
                node.wait_until_settled()
                faults["kills" if kills else "pauses"] += 1
        history.stop(clients)
        node.wait_until_settled(lag_max=0)
        for client in clients:
            client.read(client.keys, last=True)
        repaired = node.metric("sherwood_duplicate_repaired_total"), node.metric("sherwood_duplicate_differs_total")
        show(clients, faults, "%d repairs, %d by a copy" % repaired)
        return contradictions(clients, directory) + differences(kind, own, duplicates, clients)
    finally:
        history.stop(clients)
        node.stop()
        stores.stop_all(own)
