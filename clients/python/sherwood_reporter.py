"""Reports the latency and the slowest backend of finished requests to a Sherwood node."""

import collections
import json
import threading
import time
import urllib.request


class Reporter:
    """Sends reports in batches from a thread of its own.

    `report` only appends to a queue, so a slow or absent node costs reports and never time of a
    request. The node accepts at most 100,000 reports in a batch.
    """

    def __init__(self, url, *, token=None, queue_max=10_000, batch_max=1_000, interval_s=1.0, timeout_s=5.0):
        """Starts to report to the admin API at `url`, such as http://127.0.0.1:8080.

        A batch is sent every `interval_s` seconds, or sooner if `batch_max` reports wait. At most
        `queue_max` wait; further ones are dropped. A batch that is not answered within `timeout_s`
        seconds is lost.
        """
        self._url = url.rstrip("/") + "/v1/reports"
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._queue_max = max(1, queue_max)
        self._batch_max = max(1, min(batch_max, 100_000, self._queue_max))
        self._interval_s, self._timeout_s = interval_s, timeout_s
        self._queue = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self.sent = 0
        """Reports that the node took."""
        self.lost = 0
        """Reports dropped because the queue was full, and those of batches that failed."""
        self.last_error = None
        """The error of the last batch that failed."""
        self._thread = threading.Thread(target=self._run, name="sherwood-reporter", daemon=True)
        self._thread.start()

    def report(self, latency_s, blocking=None, *, request_class=None, tenant=None):
        """Reports a request that ended now, after `latency_s` seconds.

        `blocking` names the backend of the query that ended last; None if there was no query.
        """
        report = {"latency_us": max(0, round(latency_s * 1e6)), "blocking": blocking, "t": int(time.time() * 1000)}
        if request_class is not None:
            report["class"] = request_class
        if tenant is not None:
            report["tenant"] = tenant
        with self._changed:
            if self._closed or len(self._queue) >= self._queue_max:
                self.lost += 1
                return
            self._queue.append(report)
            if len(self._queue) >= self._batch_max:
                self._changed.notify()

    def close(self, timeout_s=None):
        """Sends what waits, and stops; waits at most `timeout_s` seconds, for ever if None."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self):
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or len(self._queue) >= self._batch_max, self._interval_s
                )
                batch = [self._queue.popleft() for _ in range(min(self._batch_max, len(self._queue)))]
                if not batch and self._closed:
                    return
            if batch:
                self._send(batch)

    def _send(self, batch):
        error, refused = None, 0
        try:
            body = json.dumps(batch).encode()
            request = urllib.request.Request(self._url, body, self._headers, method="POST")
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                said = json.loads(answer.read() or "{}")
            refused = said.get("refused", 0)
            if refused:
                error = ValueError(f"{refused} of {len(batch)} reports were refused: {said.get('error')}")
        # No error may end the thread.
        except Exception as caught:
            error, refused = caught, len(batch)
        with self._changed:
            self.sent += len(batch) - refused
            self.lost += refused
            if error is not None:
                self.last_error = error
