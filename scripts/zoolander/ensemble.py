"""Serial writes to one ensemble of ZooKeeper, as a curve of percentiles."""

import time

import latency
import stores

SERVERS = 3
WRITES = 20_000
PERCENTILES = (1, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100)


def start_ensemble(directory):
    ports = [(next(stores.servers.PORTS), next(stores.servers.PORTS)) for _ in range(SERVERS)]
    lines = [f"server.{number}=127.0.0.1:{of[0]}:{of[1]}" for number, of in enumerate(ports, 1)]
    lines += ["initLimit=20", "syncLimit=10"]
    own = [stores.servers.Zookeeper(directory, f"member-{number}", lines, number) for number in range(1, SERVERS + 1)]
    # None is ready before there is a majority.
    try:
        for server in own:
            server.launch()
        for server in own:
            server.wait()
    except BaseException:
        stores.stop_all(own)
        raise
    return own


def run(options, directory):
    """Prints the latencies of writes that follow one another."""
    own = start_ensemble(directory)
    node = stores.Node(options.node, directory, "node", stores.backend("zookeeper", "items", own[:1], ""))
    try:
        node.start()
        times = []
        for number in range(WRITES):
            begun = time.monotonic()
            outcome, text = node.gateway.write("items", f"k{number % latency.KEYS}", "v" * 100)
            times.append(1e3 * (time.monotonic() - begun))
            if outcome != "acknowledged":
                raise SystemExit(f"write {number}: {outcome}: {text}")
    finally:
        node.stop()
        stores.stop_all(own)
    mean, ordered = sum(times) / len(times), sorted(times)
    curve = ", ".join(f"P{percent:g} {latency.percentile(ordered, percent):.2f}" for percent in PERCENTILES)
    ratio = latency.percentile(ordered, 99) / mean
    print(f"ensemble of {SERVERS}, {WRITES} serial writes, ms: mean {mean:.2f}, {curve}; P99 {ratio:.1f} times the mean")
    return []
