"""Tests: python3 -m unittest. With SHERWOOD_URL, also against that node, which has a backend `a`."""

import http.server
import json
import os
import socket
import threading
import unittest

from sherwood_reporter import Reporter

NEVER_S = 600


class Node(http.server.BaseHTTPRequestHandler):
    """Keeps the bodies that are posted to it."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, self.headers["authorization"], json.loads(body)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_):
        pass


class Reports(unittest.TestCase):
    def test_reports_arrive_in_batches(self):
        server = http.server.HTTPServer(("127.0.0.1", 0), Node)
        server.got, server.answer = [], b""
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}"
        reporter = Reporter(url, token="secret", batch_max=2, interval_s=NEVER_S)
        reporter.report(0.25, "a", request_class="page", tenant="shop")
        for _ in range(2):
            reporter.report(0.001)
        reporter.close()
        batches = [reports for _, _, reports in server.got]
        self.assertEqual({place[:2] for place in server.got}, {("/v1/reports", "Bearer secret")})
        self.assertEqual([len(batch) for batch in batches], [2, 1])
        first = batches[0][0]
        self.assertGreater(first.pop("t"), 1_600_000_000_000)
        self.assertEqual(first, {"latency_us": 250_000, "blocking": "a", "class": "page", "tenant": "shop"})
        self.assertEqual((reporter.sent, reporter.lost), (3, 0))

    def test_reports_that_the_node_refuses_are_lost(self):
        server = http.server.HTTPServer(("127.0.0.1", 0), Node)
        server.got, server.answer = [], b'{"accepted":1,"dropped":0,"refused":1,"error":"report 0: no backend"}'
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        reporter = Reporter(f"http://127.0.0.1:{server.server_port}", interval_s=NEVER_S)
        reporter.report(0.1, "unknown")
        reporter.report(0.1, "a")
        reporter.close()
        self.assertEqual((reporter.sent, reporter.lost), (1, 1))
        self.assertIn("no backend", str(reporter.last_error))

    def test_absent_node_loses_reports_and_does_not_raise(self):
        with socket.socket() as taken:
            # Bound without listening, so that connections are refused.
            taken.bind(("127.0.0.1", 0))
            reporter = Reporter(f"http://127.0.0.1:{taken.getsockname()[1]}", interval_s=NEVER_S)
            reporter.report(0.1, "a")
            reporter.close()
        self.assertEqual((reporter.sent, reporter.lost), (0, 1))
        self.assertIsNotNone(reporter.last_error)

    def test_silent_node_holds_no_more_than_the_queue(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            reporter = Reporter(url, queue_max=10, batch_max=10, interval_s=NEVER_S, timeout_s=NEVER_S)
            for _ in range(100):
                reporter.report(0.1)
            # The thread takes at most one batch from the queue meanwhile.
            self.assertGreaterEqual(reporter.lost, 80)

    @unittest.skipUnless("SHERWOOD_URL" in os.environ, "no node")
    def test_node_takes_reports(self):
        reporter = Reporter(os.environ["SHERWOOD_URL"])
        for _ in range(100):
            reporter.report(0.1, "a")
        reporter.close()
        self.assertEqual((reporter.sent, reporter.lost, reporter.last_error), (100, 0, None))


if __name__ == "__main__":
    unittest.main()
