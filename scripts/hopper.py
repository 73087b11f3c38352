#!/usr/bin/env python3
"""Measures policies between tenants before a table of DynamoDB, as hare.py does before made-up values.

The table is one of dynalite, a server with DynamoDB's API that reports consumed capacity as
DynamoDB does. It has only one core and never throttles, so sizes and rates are small: they must be
such that it, and not a tenant's rate, is never the limit. Reads are strongly consistent: each takes
a whole read unit, as tenants are charged.

Beside the figures of hare.py it compares the units that tenants were charged with those that the
answers of the table reported.

JSON lines go to stdout, progress and tables to stderr.
"""

import base64
import http.client
import json
import os
import re
import signal
import sys

import hare
from peers import Server, free_port

TABLE = "tenants"
# Items of a BatchWriteItem.
BATCH_ITEMS = 25
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
DEFAULTS = {"policies": ["hare"], "rounds": 1, "warm_up": 120, "scale": 1 / 512, "rates": 0.05, "data": "target/hopper"}
EXAMPLES = """examples:
  make bench-hopper                                       working-set-4, a round
  make bench-hopper ARGS="skew-0 --rounds 3 --policies drf,hare"
"""


class Table(Server):
    """dynalite with a table of all tenants' keys."""

    def __init__(self, options, document):
        port = free_port()
        command = ["node", options.dynalite, "--host", "127.0.0.1", "--createTableMs", "0", "--port", str(port)]
        super().__init__("dynalite", "http", port, command, options.table_core)
        self.wait_until_ready()
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        key = {"AttributeDefinitions": [{"AttributeName": "key", "AttributeType": "S"}], "KeySchema": [{"AttributeName": "key", "KeyType": "HASH"}]}
        self.ask("CreateTable", {"TableName": TABLE, "BillingMode": "PAY_PER_REQUEST", **key})
        while self.ask("DescribeTable", {"TableName": TABLE})["Table"]["TableStatus"] != "ACTIVE":
            pass
        self.fill([hare.key(number, rank).decode() for number, own in enumerate(document["tenants"]) for rank in range(own["loads"][0]["keys"])])

    def ask(self, operation, body):
        """Sends an operation. dynalite does not verify signatures."""
        scope = "20261125/eu-central-1/dynamodb/aws4_request"
        headers = {
            "x-amz-target": f"DynamoDB_20120810.{operation}",
            "content-type": "application/x-amz-json-1.0",
            "x-amz-date": "20261125T000000Z",
            "authorization": f"AWS4-HMAC-SHA256 Credential=any/{scope}, SignedHeaders=host, Signature=0",
        }
        self.connection.request("POST", "/", json.dumps(body), headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{operation}: dynalite answers {answer.status} {text!r}")
        return json.loads(text)

    def fill(self, keys):
        print(f"hopper: filling the table with {len(keys)} items", file=sys.stderr)
        value = {"B": base64.b64encode(b"v" * hare.VALUE_BYTES).decode()}
        for first in range(0, len(keys), BATCH_ITEMS):
            items = [{"PutRequest": {"Item": {"key": {"S": key}, "value": value}}} for key in keys[first : first + BATCH_ITEMS]]
            if self.ask("BatchWriteItem", {"RequestItems": {TABLE: items}})["UnprocessedItems"]:
                raise SystemExit("BatchWriteItem: dynalite left out items")


class Node(hare.Node):
    """A node before a table."""

    def __init__(self, options, document, policy):
        self.table = Table(options, document)
        self.STORE = (
            f'{{ kind = "dynamodb", table = "{TABLE}", region = "eu-central-1", consistent = true, connections_max = 256, '
            f'endpoint = "{self.table.target()}" }}'
        )
        super().__init__(options, document, policy)

    def status(self):
        status = super().status()
        metrics = self.get("/metrics").decode()
        consumed, charged = {}, {}
        for kind in ("reads", "writes"):
            counts = re.findall(rf'^sherwood_store_consumed_units_total{{.*kind="{kind}".*}} (\S+)$', metrics, re.M)
            consumed[kind] = sum(map(float, counts))
            charged[kind] = sum(own["used_total"][kind] for own in status["tenants"])
            print(f"hopper: {charged[kind]:.0f} units of {kind} charged to tenants, {consumed[kind]:.0f} consumed by the table's answers", file=sys.stderr)
        return {**status, "charged": charged, "consumed": consumed, "table_cpu_s": round(self.table.cpu_s(), 1)}

    def stop(self):
        super().stop()
        self.table.stop()


def main():
    os.environ.update(CREDENTIALS)
    parser = hare.arguments(__doc__, EXAMPLES, ["working-set-4"])
    parser.add_argument("--dynalite", default="target/dynalite/node_modules/dynalite/cli.js", help="its program [default: %(default)s]")
    parser.add_argument("--table-core", default="1", help="core of dynalite [default: %(default)s]")
    parser.set_defaults(node=Node, **DEFAULTS)
    hare.run(parser)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
