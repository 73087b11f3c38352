"""How users of redis-py log in to a Redis that asks for a password, tried with the one at HOST PORT."""

import sys

import redis

from tap import check, end, refused


def main(host, port):
    for protocol in (2, 3):
        without = redis.Redis(host, port, protocol=protocol)
        refused("no password", redis.exceptions.AuthenticationError, lambda: without.get("a"))
        wrong = redis.Redis(host, port, protocol=protocol, password="1234567X")
        refused("a wrong password", redis.exceptions.AuthenticationError, lambda: wrong.get("a"))
        right = redis.Redis(host, port, protocol=protocol, password="12345678")
        check("the password", (right.set("a", "1"), right.get("a")), (True, b"1"))
        named = redis.Redis(host, port, protocol=protocol, username="alice", password="open-sesame")
        check("a name and its password", named.get("a"), b"1")
    end()


main(sys.argv[1], int(sys.argv[2]))
