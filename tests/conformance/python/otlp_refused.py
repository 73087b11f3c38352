"""Sends what is no export of spans to the gRPC port at HOST PORT, and checks the status codes."""

import sys

import grpc

from tap import check, end

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def main(host, port):
    channel = grpc.insecure_channel(f"{host}:{port}")

    def code(message, call=EXPORT, compression=None):
        try:
            channel.unary_unary(call)(message, compression=compression)
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    invalid = grpc.StatusCode.INVALID_ARGUMENT
    check("an export without spans", code(b""), grpc.StatusCode.OK)
    check("the same compressed", code(b"", compression=grpc.Compression.Gzip), grpc.StatusCode.OK)
    check("no protobuf", code(b"\xff" * 100), invalid)
    check("64 MiB", code(bytes(64 << 20)), invalid)
    check("64 MiB compressed", code(bytes(64 << 20), compression=grpc.Compression.Gzip), invalid)
    unsupported = code(bytes(1000), compression=grpc.Compression.Deflate)
    check("another compression", unsupported, grpc.StatusCode.UNIMPLEMENTED)
    check("another call", code(b"", call="/x.Y/Z"), grpc.StatusCode.UNIMPLEMENTED)
    check("an export after all that", code(b""), grpc.StatusCode.OK)
    end()


main(sys.argv[1], sys.argv[2])
