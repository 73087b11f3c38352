#!/usr/bin/env python3
"""Reports and spans that a node takes for a second of its processor time, as JSON lines.

A node with one thread of HTTP receives, over one connection, POST /v1/reports with 10,000 reports a
body, then POST /v1/traces with 250 requests of a root and three queries a body, in protobuf. Bodies are
made before; only the ids of traces change. The figure counts all processor time of the node, so that a
slow sender does not count against it. It counts only what the node has taken, by its own metrics.
"""

import argparse
import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time

BACKENDS = [f"backend-{number:02}" for number in range(20)]
REPORTS = 10_000
TRACES = 250
QUERIES = 3
# Ids of traces in a body begin with this, which every export replaces.
PLACE = b"\xa5\x5a" * 4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="length of each measurement (10)")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS", "5")), help="number of rounds (5)")
    parser.add_argument("--only", choices=["reports", "spans"], help="one of the two")
    return parser.parse_args()


def configuration(admin):
    backends = "".join(
        f'[[backend]]\nname = "{name}"\nspans = {{ "db.system.name" = "mysql", "db.namespace" = "{name}" }}\n'
        for name in BACKENDS
    )
    return f'[control]\npolicy = "static"\n[admin]\nbind = "{admin}"\n{backends}'


class Node:
    """A node of one thread, on core 0 if there are two."""

    def __init__(self, directory, admin):
        path = pathlib.Path(directory) / "node.toml"
        path.write_text(configuration(admin), encoding="utf-8")
        binary = os.environ.get("SHERWOOD", "target/release/sherwood")
        self.process = subprocess.Popen(
            [binary, "serve", "--config", str(path), "--threads", "1"], stderr=subprocess.PIPE, text=True
        )
        if (os.cpu_count() or 1) > 1:
            os.sched_setaffinity(self.process.pid, {0})
        for line in self.process.stderr:
            if line.startswith("ready"):
                break
        else:
            raise SystemExit("the node did not start")
        host, port = admin.split(":")
        self.connection = socket.create_connection((host, int(port)))
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def stop(self):
        self.connection.close()
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait()

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, method, path, kind="", body=b""):
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        self.connection.sendall(head.encode() + body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.connection.recv(1 << 16)
        head, rest = answer.split(b"\r\n\r\n", 1)
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(rest) < length:
            rest += self.connection.recv(1 << 16)
        if head.split(b" ")[1] != b"200":
            raise SystemExit(f"{path}: {head.decode()}\n{rest.decode()}")
        return rest.decode(errors="replace")

    def metric(self, name):
        lines = self.ask("GET", "/metrics").splitlines()
        return next(float(line.split(" ")[1]) for line in lines if line.startswith(name + " "))


def reports():
    each = [
        {"latency_us": 1_000 + number * 7919 % 100_000, "blocking": BACKENDS[number % len(BACKENDS)]}
        for number in range(REPORTS)
    ]
    return json.dumps(each, separators=(",", ":")).encode()


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    """A field of protobuf: bytes, text or a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name, value):
    return field(1, name) + field(2, field(1, value))


def span(trace, number, parent, kind, times, attributes):
    start, end = times
    return (
        field(1, trace)
        + field(2, struct.pack(">Q", number))
        + (field(4, struct.pack(">Q", parent)) if parent else b"")
        + field(5, "GET /page/{id}" if kind == 2 else "SELECT items")
        + varint(6 << 3) + varint(kind)
        + varint(7 << 3 | 1) + struct.pack("<Q", start)
        + varint(8 << 3 | 1) + struct.pack("<Q", end)
        + b"".join(field(9, attribute(name, value)) for name, value in attributes)
    )


def spans():
    now = time.time_ns()
    out = []
    for number in range(TRACES):
        trace = PLACE + struct.pack(">Q", number + 1)
        start, latency = now - 10**9, 10**6 * (2 + number % 50)
        for query in range(QUERIES):
            backend = BACKENDS[(number + 7 * query) % len(BACKENDS)]
            attributes = [
                ("db.system.name", "mysql"), ("db.namespace", backend), ("db.operation.name", "SELECT"),
                ("server.address", "db.example.com"),
            ]
            end = start + latency - 10**5 * (QUERIES - query)
            out.append(span(trace, query + 2, 1, 3, (start, end), attributes))
        attributes = [
            ("http.request.method", "GET"), ("http.route", "/page/{id}"), ("url.path", "/page/7"),
            ("url.scheme", "https"), ("network.protocol.version", "1.1"),
        ]
        out.append(span(trace, 1, 0, 2, (start, start + latency), attributes))
    scope = field(1, field(1, "app")) + b"".join(field(2, one) for one in out)
    resource = field(1, field(1, attribute("service.name", "shop")))
    return field(1, resource + field(2, scope))


def measure(name, each, node, seconds, send):
    """Sends until the time is over. What the node has taken is counted before and after."""
    before, cpu_s, began = taken(node, name), node.cpu_s(), time.monotonic()
    number = 0
    while time.monotonic() < began + seconds:
        send(number)
        number += 1
    took_s, cpu_s = time.monotonic() - began, node.cpu_s() - cpu_s
    if name == "spans":
        time.sleep(6)  # A trace ends five seconds after its root.
    count = (taken(node, name) - before) * (QUERIES + 1 if name == "spans" else 1)
    sent = number * each
    print(json.dumps({
        "name": name, "per_core_s": round(sent / cpu_s), "per_s": round(sent / took_s),
        "core_ratio": round(cpu_s / took_s, 3), "sent": sent, "counted_ratio": round(count / sent, 4),
    }), flush=True)


def taken(node, name):
    return node.metric("sherwood_trace_requests_total" if name == "spans" else "sherwood_requests_total")


def main():
    args = arguments()
    report_body, span_body = reports(), spans()
    with tempfile.TemporaryDirectory() as directory:
        for number in range(args.rounds):
            if args.only != "spans":
                node = Node(directory, f"127.0.0.1:{22390 + number % 5}")
                measure("reports", REPORTS, node, args.seconds,
                        lambda _: node.ask("POST", "/v1/reports", "application/json", report_body))
                node.stop()
            if args.only != "reports":
                node = Node(directory, f"127.0.0.1:{22390 + number % 5}")
                kind = "application/x-protobuf"
                measure("spans", TRACES * (QUERIES + 1), node, args.seconds,
                        lambda number: node.ask("POST", "/v1/traces", kind,
                                                span_body.replace(PLACE, struct.pack(">Q", number + 1))))
                node.stop()


if __name__ == "__main__":
    main()
