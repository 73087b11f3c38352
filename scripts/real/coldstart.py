#!/usr/bin/env python3
"""Starts a cold node under full load, with and without ramps, and measures failures and recovery.

The backends are those of `slowed.py`. One of them has a share of a core that suffices for the
misses of a warm cache but not of a cold one. The requests of the orm-busy trace, ten keys each,
arrive at their full rate from the start. A request fails when one of its queries times out, is
refused or returns an error. The SLO is met from the second after which the P99 of the last ten
seconds stays within the bound; a failed request counts as infinitely slow.

A JSON line for each run goes to stdout, with the share of failed requests in each ten seconds.
The summary goes to stderr.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time

import shop

VARIANTS = ("none", "ramp")
RAMP = "ramp = {}"
# Most requests in flight; one more counts as failed.
UNDER_WAY_MAX = 4000
FAILED = ("timeout", "rejected", "error")


class Gateway:
    """Connections to a node, opened on demand and kept open."""

    def __init__(self, port):
        self.port, self.free = port, []

    async def connection(self):
        """Returns a free connection, or a new one; the node closes connections that are idle for long."""
        while self.free:
            reader, writer = self.free.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, queries):
        """Returns the statuses of the keys; none when the node closes the connection."""
        body = json.dumps({"values": False, "queries": [{"backend": backend, "keys": keys} for backend, keys in queries.items()]}).encode()
        reader, writer = await self.connection()
        writer.write(b"POST /v1/requests HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                     % (self.port, len(body)) + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        self.free.append((reader, writer))
        if not head.startswith(b"http/1.1 200"):
            raise SystemExit(f"the node answered {answer.decode(errors='replace')}")
        return [result["status"] for result in json.loads(answer)["results"]]


async def send(args, node, requests):
    """Each request as the time of its end since the beginning, its latency and whether it failed."""
    gateway, done, tasks, causes = Gateway(node.port), [], set(), {}
    began = due = time.monotonic()
    draw = random.Random(1)

    async def one(intended, queries):
        statuses = await gateway.ask(queries)
        failed = [status for status in statuses if status in FAILED]
        for status in failed:
            causes[status] = causes.get(status, 0) + 1
        end = time.monotonic()
        done.append((end - began, end - intended, bool(failed)))

    for queries in requests:
        due += draw.expovariate(args.rate)
        if due > began + args.seconds:
            break
        await asyncio.sleep(max(0, due - time.monotonic()))
        if len(tasks) >= UNDER_WAY_MAX:
            done.append((time.monotonic() - began, 0, True))
            continue
        task = asyncio.create_task(one(due, queries))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return done, causes


def holds_from_s(done, bound_s, seconds):
    """The first second since whose end the share of failed and late ones among the last ten seconds' requests is at most 1%."""
    last_bad = 0
    for second in range(1, seconds + 1):
        window = [failed or latency > bound_s for end, latency, failed in done if second - shop.WINDOW_S < end <= second]
        if window and sum(window) > 0.01 * len(window):
            last_bad = second
    return last_bad + 1 if last_bad < seconds else None


def run(args, world, words, name, variant):
    config = world.configuration(f"{variant}.toml", args.cache, args.bound_ms, backend=RAMP if variant == "ramp" else "")
    node = shop.Node(world.directory, name, config, "shared-lru").start()
    try:
        done, causes = asyncio.run(send(args, node, shop.requests(words, world.places)))
        shares = []
        for begin in range(0, args.seconds, 10):
            of = [failed for end, _, failed in done if begin <= end < begin + 10]
            shares.append(round(sum(of) / len(of), 4) if of else None)
        return {"start": variant, "requests": len(done), "failed_ratio": sum(failed for *_, failed in done) / len(done),
                "failed_keys": causes, "failed_ratio_by_10s": shares, "holds_from_s": holds_from_s(done, args.bound_ms / 1000, args.seconds)}
    finally:
        node.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="both, or `none` alone to choose the other flags by")
    parser.add_argument("--rate", type=float, default=400, help="requests per second, of ten keys each")
    parser.add_argument("--cache", default="64MiB")
    parser.add_argument("--bound-ms", type=int, default=100)
    parser.add_argument("--slowed", choices=shop.BACKENDS, default="mariadb")
    parser.add_argument("--ratio", type=float, default=0.1, help="share of a core that the slowed backend has")
    parser.add_argument("--seconds", type=int, default=100)
    args = parser.parse_args()
    words, variants = shop.accesses(int(args.rate * shop.QUERIES * args.seconds * 1.2)), args.variants.split(",")
    with tempfile.TemporaryDirectory(prefix="sherwood-real-") as directory, shop.Shop(directory, words) as world:
        world.servers[args.slowed].limit_cpu(args.ratio)
        results = shop.in_turn(args.rounds, variants, lambda name, variant: run(args, world, words, name, variant))
    if len(variants) == 2:
        shop.summary(results, "start", variants, ("failed_ratio", "holds_from_s"))


if __name__ == "__main__":
    main()
