import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Reporter } from "./reporter.js";

const NEVER_MS = 600_000;

async function listening(server: Server): Promise<string> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("reports arrive in batches", async () => {
  const got: { place: string; reports: Record<string, unknown>[] }[] = [];
  const node = createServer(async (request, answer) => {
    let body = "";
    for await (const piece of request) body += piece;
    got.push({ place: `${request.url} ${request.headers.authorization}`, reports: JSON.parse(body) });
    answer.end("{}");
  });
  const reporter = new Reporter(await listening(node), { token: "secret", batchMax: 2, intervalMs: NEVER_MS });
  reporter.report({ latencyMs: 250, blocking: "a", class: "page", tenant: "shop" });
  reporter.report({ latencyMs: 1 });
  reporter.report({ latencyMs: 1 });
  await reporter.close();
  node.close();
  assert.deepEqual(got.map(({ place, reports }) => [place, reports.length]), [
    ["/v1/reports Bearer secret", 2],
    ["/v1/reports Bearer secret", 1],
  ]);
  const { t, ...first } = got[0].reports[0];
  assert.ok((t as number) > 1.6e12);
  assert.deepEqual(first, { latency_us: 250_000, blocking: "a", class: "page", tenant: "shop" });
  assert.deepEqual([reporter.sent, reporter.lost], [3, 0]);
});

test("reports that the node refuses are lost", async () => {
  const node = createServer((_, answer) => {
    answer.end('{"accepted":1,"dropped":0,"refused":1,"error":"report 0: no backend"}');
  });
  const reporter = new Reporter(await listening(node), { intervalMs: NEVER_MS });
  reporter.report({ latencyMs: 1, blocking: "unknown" });
  reporter.report({ latencyMs: 1, blocking: "a" });
  await reporter.close();
  node.close();
  assert.deepEqual([reporter.sent, reporter.lost], [1, 1]);
  assert.match(String(reporter.lastError), /no backend/);
});

test("an absent node loses reports and throws nothing", async () => {
  const gone = createServer();
  const url = await listening(gone);
  gone.close();
  await once(gone, "close");
  const reporter = new Reporter(url, { intervalMs: NEVER_MS });
  reporter.report({ latencyMs: 1, blocking: "a" });
  await reporter.close();
  assert.deepEqual([reporter.sent, reporter.lost], [0, 1]);
  assert.ok(reporter.lastError);
});

test("a silent node holds no more than the queue and a batch", async () => {
  const silent = createServer(() => {});
  const url = await listening(silent);
  const reporter = new Reporter(url, { queueMax: 10, batchMax: 10, intervalMs: NEVER_MS, timeoutMs: 50 });
  for (let number = 0; number < 100; number++) reporter.report({ latencyMs: 1 });
  assert.equal(reporter.lost, 80);
  await reporter.close();
  silent.closeAllConnections();
  silent.close();
  assert.deepEqual([reporter.sent, reporter.lost], [0, 100]);
});

test("a node takes reports", { skip: !process.env.SHERWOOD_URL }, async () => {
  const reporter = new Reporter(process.env.SHERWOOD_URL ?? "");
  for (let number = 0; number < 100; number++) reporter.report({ latencyMs: 100, blocking: "a" });
  await reporter.close();
  assert.deepEqual([reporter.sent, reporter.lost, reporter.lastError], [100, 0, undefined]);
});
