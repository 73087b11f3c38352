"""Partitions and duplicates of a store of Redis servers change under writes."""

import itertools
import json
import time

import faults
import history
import latency
import stores

SERVERS = 4
LAYOUTS = ((1, 4), (2, 1), (2, 2))
EVERY_S = 10
BEFORE_S = 60
CLIENTS = 8


def write_ms(clients, begun, ended):
    """Returns latencies of the writes of some time, ascending."""
    writes = (record for client in clients for record in client.records if record["kind"] != "read")
    return sorted(1e3 * (one["ended"] - one["begun"]) for one in writes if begun <= one["begun"] < ended)


def clients_of(port, seed):
    owned = [[f"{prefix}{number}-{at}" for prefix in ("kept-", history.FETCHED) for at in range(50)] for number in range(CLIENTS)]
    keys = list(itertools.chain(*owned))
    return [
        history.Client(port, "items", f"items-{number}", keys, own, f"{seed} {number}", write_ratio=0.8)
        for number, own in enumerate(owned)
    ]


def run(options, directory):
    """Prints P99 of writes before the changes and under them, and returns the contradictions."""
    own = stores.start_servers("redis", directory, SERVERS)
    rules = f'partitions = 2\nduplicates = 2\nack = "all"\nconsistency = "causal"\n{faults.NOT_KEPT}'
    node = stores.Node(options.node, directory, "node", stores.backend("redis", "items", own, rules))
    clients, changes = [], 0
    try:
        node.start()
        node.wait_until_settled()
        clients = clients_of(node.port, options.seed)
        for client in clients:
            client.start()
        begun = time.monotonic()
        time.sleep(BEFORE_S)
        first = time.monotonic()
        for partitions, duplicates in itertools.cycle(LAYOUTS):
            if (ends := first + changes * EVERY_S) >= first + options.seconds:
                break
            time.sleep(max(0, ends - time.monotonic()))
            body = json.dumps({"partitions": partitions, "duplicates": duplicates})
            status, text = node.gateway.ask("PUT", "/v1/stores/items", body)
            if status != 200:
                raise SystemExit(f"PUT /v1/stores/items {body}: {status} {text}")
            changes += 1
        time.sleep(EVERY_S)
        last = time.monotonic()
        history.stop(clients)
        node.wait_until_settled(lag_max=0)
        for client in clients:
            client.read(client.keys, last=True)
    finally:
        history.stop(clients)
        node.stop()
        stores.stop_all(own)
    before, during = write_ms(clients, begun, first), write_ms(clients, first, last)
    p99 = [latency.percentile(ordered, 99) for ordered in (before, during)]
    outcomes = [record["outcome"] for client in clients for record in client.records if record["kind"] != "read"]
    lost = ", ".join(f"{outcomes.count(name)} {name}" for name in ("acknowledged", "unknown", "not_done"))
    print(f"layouts: {changes} changes, writes: {lost}")
    print(f"  P99 {p99[0]:.2f} ms before, {p99[1]:.2f} ms under them, {p99[1] / p99[0]:.2f} times")
    return history.check([record for client in clients for record in client.records], "all", "causal")
