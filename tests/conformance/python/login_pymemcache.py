"""How users of pymemcache log in to a memcached that asks for a password, tried with the one at HOST PORT."""

import sys

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError

from tap import check, end, refused


def main(host, port):
    client = Client((host, port), no_delay=True)
    refused("a get before the login", MemcacheClientError, lambda: client.get("a"))
    refused("a wrong password", MemcacheClientError, lambda: client.set("any", "alice open-sesamE", noreply=False))
    check("the password", client.set("any", "alice open-sesame", noreply=False), True)
    check("a set", client.set("a", "1", noreply=False), True)
    check("a get", client.get("a"), b"1")
    check("the password is no value", client.get("any"), None)
    client.close()
    refused("a get on a new connection", MemcacheClientError, lambda: client.get("a"))
    end()


main(sys.argv[1], int(sys.argv[2]))
