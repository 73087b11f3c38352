"""Reads keys with LIBRARY from the cache at HOST PORT as an application does: a missed value is computed, which takes MS, and stored."""

import sys
import time

host, port, library, ms = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
KEYS = 8


def compute():
    time.sleep(ms / 1000)
    return b"value"


def with_redis():
    import redis

    client = redis.Redis(host, port)
    for number in range(KEYS):
        if client.get(f"k{number}") is None:
            client.set(f"k{number}", compute(), ex=60)
    return [client.get(f"k{number}") for number in range(KEYS)]


def with_pymemcache():
    from pymemcache.client.base import Client

    client = Client((host, port))
    for number in range(KEYS):
        if client.get(f"k{number}") is None:
            client.set(f"k{number}", compute())
    return [client.get(f"k{number}") for number in range(KEYS)]


def with_django():
    from django.conf import settings

    place = {"BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache", "LOCATION": f"{host}:{port}"}
    settings.configure(CACHES={"default": place})
    from django.core.cache import cache

    for number in range(KEYS):
        cache.get_or_set(f"k{number}", compute, 60)
    return [cache.get(f"k{number}") for number in range(KEYS)]


values = {"redis": with_redis, "pymemcache": with_pymemcache, "django": with_django}[library]()
print("ok - all values" if values == [b"value"] * KEYS else f"not ok - {values}")
