"""Exports spans of requests to the node at HOST PORT as applications do, with OpenTelemetry's SDK.

The protocol is http, http-gzip, grpc or grpc-gzip. Every request reads from `a` and `b`; each third
one waits for `b` to the end, the others for `a`."""

import sys
import time

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, set_span_in_context

from tap import check, end

REQUESTS = 400


def exporter(host, port, protocol):
    transport, _, compression = protocol.partition("-")
    if transport == "http":
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        method = Compression.Gzip if compression else Compression.NoCompression
        return OTLPSpanExporter(endpoint=f"http://{host}:{port}/v1/traces", compression=method)
    from grpc import Compression
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    method = Compression.Gzip if compression else Compression.NoCompression
    return OTLPSpanExporter(endpoint=f"http://{host}:{port}", insecure=True, compression=method)


def request(tracer, number):
    """Makes the spans of a request that ends now."""
    latency = 10_000 + 50 * number
    now = time.time_ns()
    start = now - latency * 1000
    root = tracer.start_span("GET /", Context(), SpanKind.SERVER, start_time=start)
    inside = set_span_in_context(root)
    first, last = ("a", "b") if number % 3 == 0 else ("b", "a")
    for backend, us in [(first, latency // 2), (last, latency - 5)]:
        attributes = {"peer.service": backend}
        query = tracer.start_span("get", inside, SpanKind.CLIENT, attributes, start_time=start)
        query.end(start + us * 1000)
    root.end(now)


def main(host, port, protocol):
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for number in range(REQUESTS):
        request(provider.get_tracer("shop"), number)
    spans = memory.get_finished_spans()
    check("spans made", len(spans), 3 * REQUESTS)
    node = exporter(host, port, protocol)
    for at in range(0, len(spans), 500):
        check(f"export {at}", node.export(spans[at : at + 500]), SpanExportResult.SUCCESS)
    node.shutdown()
    end()


main(*sys.argv[1:])
