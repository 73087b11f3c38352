"""How users of pylibmc log in to a memcached that asks for a password, tried with the one at HOST PORT."""

import sys

import pylibmc

from tap import check, end, refused


def main(host, port):
    client = pylibmc.Client([f"{host}:{port}"])
    refused("a wrong password", pylibmc.Error, lambda: client.set("any", "default 1234567X"))
    check("the password", client.set("any", "default 12345678"), True)
    check("a set", client.set("b", "1"), True)
    check("a get", client.get("b"), "1")
    end()


main(sys.argv[1], int(sys.argv[2]))
