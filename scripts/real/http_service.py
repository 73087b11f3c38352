#!/usr/bin/env python3
"""Serves HTTP: GET, PUT and DELETE /items/KEY, with values kept in memory.

    http_service.py PORT [BYTES]

With BYTES, every key that was not put has a value of this size, computed from the key on each
request.
"""

import asyncio
import hashlib
import sys
import urllib.parse


class Items(asyncio.Protocol):
    """One connection, which stays open between requests."""

    values = {}
    made_bytes = 0

    def connection_made(self, transport):
        self.transport, self.buffer = transport, b""

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head, rest = self.buffer[:end].split(b"\r\n"), self.buffer[end + 4:]
            headers = dict(line.lower().split(b": ", 1) for line in head[1:] if b": " in line)
            length = int(headers.get(b"content-length", 0))
            if len(rest) < length:
                return
            self.buffer = rest[length:]
            method, path, _ = head[0].decode("latin-1").split(" ", 2)
            status, body = self.answer(method, urllib.parse.unquote(path), rest[:length])
            self.transport.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)

    def answer(self, method, path, body):
        if not path.startswith("/items/"):
            return b"404 Not Found", b""
        key = path.removeprefix("/items/")
        if method == "PUT":
            self.values[key] = body
            return b"204 No Content", b""
        if method == "DELETE":
            self.values.pop(key, None)
            return b"204 No Content", b""
        if key in self.values:
            return b"200 OK", self.values[key]
        return (b"200 OK", made(key, self.made_bytes)) if self.made_bytes else (b"404 Not Found", b"")


def made(key, length):
    """Computes a value with one round of SHA-256 for each 32 bytes."""
    parts, digest = [], key.encode()
    for _ in range(-(-length // 32)):
        digest = hashlib.sha256(digest).digest()
        parts.append(digest)
    return b"".join(parts)[:length]


async def main():
    Items.made_bytes = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server = await asyncio.get_running_loop().create_server(Items, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
