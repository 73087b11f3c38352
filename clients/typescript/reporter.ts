/** Reports the latency and the slowest backend of finished requests to a Sherwood node. */

export interface Options {
  /** Token that the node asks for. */
  token?: string;
  /** Most reports that wait; further ones are dropped. Default 10,000. */
  queueMax?: number;
  /** Most reports of a batch, at most 100,000. Default 1,000. */
  batchMax?: number;
  /** Milliseconds between batches that are not full. Default 1,000. */
  intervalMs?: number;
  /** Milliseconds after which a batch without an answer is lost. Default 5,000. */
  timeoutMs?: number;
}

/** A request that has ended. */
export interface Report {
  /** Milliseconds from the start of the request to its end. */
  latencyMs: number;
  /** Backend of the query that ended last; none if there was no query. */
  blocking?: string;
  /** Class and tenant with SLOs of their own. */
  class?: string;
  tenant?: string;
}

interface Sent {
  latency_us: number;
  blocking: string | null;
  t: number;
  class?: string;
  tenant?: string;
}

/** Sends reports in batches, one at a time. */
export class Reporter {
  /** Reports that the node took. */
  sent = 0;
  /** Reports dropped because the queue was full, and those of batches that failed. */
  lost = 0;
  /** Error of the last batch that failed. */
  lastError: unknown;

  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #queueMax: number;
  readonly #batchMax: number;
  readonly #timeoutMs: number;
  readonly #timer: NodeJS.Timeout;
  #queue: Sent[] = [];
  /** The batches in flight, one after the other; none if there are none. */
  #sending: Promise<void> | undefined;
  #isClosed = false;

  /** Starts to report to the admin API at `url`, such as http://127.0.0.1:8080. */
  constructor(url: string, options: Options = {}) {
    this.#url = `${url.replace(/\/+$/, "")}/v1/reports`;
    this.#headers = { "content-type": "application/json" };
    if (options.token !== undefined) this.#headers.authorization = `Bearer ${options.token}`;
    this.#queueMax = Math.max(1, options.queueMax ?? 10_000);
    this.#batchMax = Math.max(1, Math.min(options.batchMax ?? 1_000, 100_000, this.#queueMax));
    this.#timeoutMs = options.timeoutMs ?? 5_000;
    this.#timer = setInterval(() => void this.#flush(1), options.intervalMs ?? 1_000);
    // The process may end while reports wait.
    this.#timer.unref();
  }

  /** Reports a request that ended now. It never waits and never throws. */
  report(report: Report): void {
    if (this.#isClosed || this.#queue.length >= this.#queueMax) {
      this.lost += 1;
      return;
    }
    this.#queue.push({
      latency_us: Math.max(0, Math.round(report.latencyMs * 1000)),
      blocking: report.blocking ?? null,
      t: Date.now(),
      class: report.class,
      tenant: report.tenant,
    });
    if (this.#queue.length >= this.#batchMax) void this.#flush(this.#batchMax);
  }

  /** Sends what waits, and stops. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    await this.#sending;
    await this.#flush(1);
  }

  /** Sends batches while at least `least` reports wait, unless that is being done already. */
  #flush(least: number): Promise<void> {
    this.#sending ??= this.#batches(least).finally(() => (this.#sending = undefined));
    return this.#sending;
  }

  async #batches(least: number): Promise<void> {
    while (this.#queue.length >= least) await this.#send(this.#queue.splice(0, this.#batchMax));
  }

  async #send(batch: Sent[]): Promise<void> {
    try {
      const answer = await fetch(this.#url, {
        method: "POST",
        headers: this.#headers,
        body: JSON.stringify(batch),
        signal: AbortSignal.timeout(this.#timeoutMs),
      });
      const said = await answer.text();
      if (!answer.ok) throw new Error(`reporting ${batch.length} requests: ${answer.status}: ${said}`);
      const { refused = 0, error } = JSON.parse(said || "{}") as { refused?: number; error?: string };
      this.sent += batch.length - refused;
      this.lost += refused;
      if (refused > 0) this.lastError = new Error(`${refused} of ${batch.length} reports were refused: ${error}`);
    } catch (error) {
      this.lost += batch.length;
      this.lastError = error;
    }
  }
}
