"""Reads keys of two kinds from the Redis at HOST PORT until it is ended: a missed value is computed, which takes longer for `slow/`."""

import random
import sys
import time

import redis

client = redis.Redis(sys.argv[1], int(sys.argv[2]))
while True:
    kind, ms = random.choice([("fast", 1), ("slow", 20)])
    key = f"{kind}/{random.randrange(1000)}"
    if client.get(key) is None:
        time.sleep(ms / 1000)
        client.set(key, b"v" * 1000)
