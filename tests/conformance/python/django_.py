"""What Django's cache framework asks of a cache, asked of the one at HOST PORT, of PROTOCOL redis or memcached.

Called once for each protocol: its back ends are RedisCache and PyMemcacheCache."""

import sys

from django.conf import settings
from django.core.cache import caches

from tap import check, end

BACKENDS = {"redis": "redis.RedisCache", "memcached": "memcached.PyMemcacheCache"}


def ask(cache):
    cache.clear()
    check("set", (cache.set("a", {"b": [1, None]}, 100), cache.get("a")), (None, {"b": [1, None]}))
    check("get of nothing", cache.get("none", "default"), "default")
    check("add", (cache.add("a", 2), cache.add("new", 2)), (False, True))
    check("set_many", cache.set_many({f"many:{number}": number for number in range(200)}, 100), [])
    check("get_many", cache.get_many(["many:0", "none", "many:199"]), {"many:0": 0, "many:199": 199})
    check("set_many without a timeout", (cache.set_many({"x": "y"}, None), cache.get("x")), ([], "y"))
    check("get_or_set", (cache.get_or_set("made", lambda: "once"), cache.get("made")), ("once", "once"))
    check("incr", (cache.set("n", 1), cache.incr("n", 5), cache.decr("n", 2)), (None, 6, 4))
    check("touch", (cache.touch("n", 50), cache.touch("none", 50)), (True, False))
    check("delete", (cache.delete("n"), cache.delete("n"), cache.get("n")), (True, False, None))
    check("delete_many", (cache.delete_many(["many:1", "none"]), cache.get("many:1")), (None, None))
    check("has_key", ("many:2" in cache, "many:1" in cache), (True, False))
    check("a version", (cache.set("v", 1, version=2), cache.get("v"), cache.get("v", version=2)), (None, None, 1))
    cache.clear()
    check("clear", cache.get("a"), None)


def main():
    host, port, protocol = sys.argv[1:4]
    location = f"redis://{host}:{port}" if protocol == "redis" else f"{host}:{port}"
    backend = f"django.core.cache.backends.{BACKENDS[protocol]}"
    settings.configure(CACHES={"default": {"BACKEND": backend, "LOCATION": location}})
    ask(caches["default"])
    end()


main()
