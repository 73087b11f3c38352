"""Latency of reads with 1, 2 and 3 duplicates that are stopped in slices, beside the model's."""

import asyncio
import json
import os
import random
import subprocess
import time

import stores

KEYS = 2_000
DUPLICATES = (1, 2, 3)
# Reads a second, at random moments.
RATE = 200
WARM_UP_S = 10
# Each server is stopped on average once in so many seconds, for a time between these.
EVERY_S, SLICE_S = 5, (0.05, 0.15)
# Bounds at which the share of reads is compared with the model's, and the goal for its error.
BOUNDS_MS = (5, 10, 20, 50, 100)
ERROR_MAX = 0.005
PERCENTILES = (50, 99, 99.9)
# Points of the measured distribution that the model is given: quantiles, and all of the longest.
POINTS, LONGEST = 1_000, 200


def configuration(kind, own):
    copies = f'dispatch = {{ copies = "fixed", factor = {len(own)} }}' if len(own) > 1 else ""
    rules = f'duplicates = {len(own)}\nttl_rules = [{{ prefix = "", ttl = "0s" }}]\n{copies}'
    # The manager measures how far duplicates are slow together.
    manager = '[slo]\nbound = "20ms"\nwindow = "10s"\nobserve = "5s"\n[stores]\nmanager = "fixed"\n'
    return stores.backend(kind, "items", own, rules) + manager


class Reader:
    """Reads at random moments; idle connections are used again."""

    def __init__(self, port, seed, rate):
        self.port, self.random, self.rate = port, random.Random(seed), rate
        # Pairs of the intended start and the end, in seconds.
        self.times, self.failed, self.idle, self.under_way = [], 0, [], set()

    async def run(self, seconds):
        start = time.monotonic()
        end = start + WARM_UP_S + seconds
        measured = start + WARM_UP_S
        while (start := start + self.random.expovariate(self.rate)) < end:
            await asyncio.sleep(start - time.monotonic())
            task = asyncio.create_task(self.one(start, start >= measured))
            self.under_way.add(task)
            task.add_done_callback(self.under_way.discard)
        await asyncio.gather(*self.under_way)

    async def one(self, start, is_measured):
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        body = b'{"queries":[{"backend":"items","keys":["k%d"]}]}' % self.random.randrange(KEYS)
        writer.write(b"POST /v1/requests HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer = await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
        end = time.monotonic()
        if is_measured:
            self.times.append((start, end))
            self.failed += b'"status":"miss"' not in answer
        self.idle.append((reader, writer))


def measure(options, kind, directory, duplicates):
    """Returns the times of reads, the number of failed ones, and the measured correlation."""
    own = stores.start_servers(kind, directory, duplicates)
    node = stores.Node(options.node, directory, "node", configuration(kind, own))
    interferences = []
    try:
        node.start()
        node.wait_until_settled()
        for number in range(KEYS):
            outcome, text = node.gateway.write("items", f"k{number}", "v" * 100)
            if outcome != "acknowledged":
                raise SystemExit(f"writing k{number}: {outcome}: {text}")
        interferences = [stores.Interference(server, f"{options.seed} {at}", EVERY_S, SLICE_S) for at, server in enumerate(own)]
        reader = Reader(node.port, f"{options.seed} {duplicates}", RATE)
        asyncio.run(reader.run(options.seconds))
        return reader.times, reader.failed, node.stores()["items"]["correlation"]
    finally:
        for interference in interferences:
            interference.close()
        node.stop()
        stores.stop_all(own)


def service_ms(times):
    """Returns the time of each read at one server, without its wait for others, ascending.

    After a stop answers come in any order. The server is busy for as long as if they came in that of
    the starts.
    """
    starts, ends = (sorted(some) for some in zip(*times))
    before = [float("-inf"), *ends[:-1]]
    return sorted(1e3 * (end - max(start, last)) for start, end, last in zip(starts, ends, before))


def write_distribution(path, ordered):
    """Writes service times as the points that `sherwood plan slo --cdf` reads."""
    count = len(ordered)
    places = {round(count * at / POINTS) for at in range(1, POINTS)} | set(range(max(1, count - LONGEST), count + 1))
    shares = {round(ordered[place - 1], 4): place / count for place in sorted(places) if place}
    with open(path, "w", encoding="ascii") as file:
        file.write("latency_ms,cumulative\n" + "".join(f"{ms},{share}\n" for ms, share in shares.items()))


class Model:
    """What `sherwood plan slo` predicts from service times where all duplicates are asked."""

    def __init__(self, node, path, rate):
        self.command = [node, "plan", "slo", "--cdf", path, "--rate", str(rate), "--percentile", "99", "--json"]

    def level(self, duplicates, ms):
        command = [*self.command, "--bound", f"{round(ms * 1e3)}us", "--nodes", str(duplicates)]
        plans = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["plans"]
        asked = {"partitions": 1, "duplicates": duplicates, "asked": duplicates, "hedge_ms": None}
        return next(plan["service_level"] for plan in plans if asked.items() <= plan.items())

    def percentile(self, duplicates, percent):
        low, high = 0.001, 10_000.0
        while high / low > 1.005:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if self.level(duplicates, middle) >= percent / 100 else (middle, high)
        return high


def percentile(ordered, percent):
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def run(options, kind, directory):
    """Prints figures with each number of duplicates."""
    model, first = None, None
    for duplicates in DUPLICATES:
        place = os.path.join(directory, str(duplicates))
        times, failed, correlation = measure(options, kind, place, duplicates)
        if duplicates == 1:
            path = os.path.join(directory, "service.csv")
            write_distribution(path, service_ms(times))
            model = Model(options.node, path, RATE)
        latencies = sorted(1e3 * (end - start) for start, end in times)
        measured = [percentile(latencies, percent) for percent in PERCENTILES]
        first = first or measured
        of_model = [model.percentile(duplicates, percent) for percent in PERCENTILES]
        figures = ", ".join(f"P{percent:g} {ms:.2f} ({at:.2f})" for percent, ms, at in zip(PERCENTILES, measured, of_model))
        print(f"{kind}, duplicates: {duplicates}, {len(times)} reads, {failed} failed")
        print(f"  ms (the model's): {figures}; P99.9 {measured[-1] / first[-1]:.2f} of that with one")
        levels = [sum(ms <= bound for ms in latencies) / len(latencies) for bound in BOUNDS_MS]
        errors = [level - model.level(duplicates, bound) for level, bound in zip(levels, BOUNDS_MS)]
        figures = ", ".join(f"{bound} ms {100 * level:.2f}% ({100 * error:+.2f})" for bound, level, error in zip(BOUNDS_MS, levels, errors))
        within = "" if max(map(abs, errors)) < ERROR_MAX else "not "
        print(f"  within (beside the model): {figures}: {within}under half a point", flush=True)
        print(f"  correlation of slow seconds: {correlation}", flush=True)
    return []
