// States deadlines by deadline_ms, one of the whole request and a shorter one of a query.
//
//   sherwood serve --config examples/deadlines.toml
//   cd examples/deadlines && npm ci && npm start -- http://127.0.0.1:8080 [DEADLINE_MS]

declare const process: { argv: string[]; exitCode: number };

interface Query {
  backend: string;
  keys: string[];
  deadline_ms?: number;
}

interface Result {
  key: string;
  status: "hit" | "miss" | "stale" | "rejected" | "timeout" | "error" | "not_found";
  value?: string;
  late?: boolean;
  /** Time after which the answer of a rejected key was expected. */
  expected_ms?: number;
  error?: string;
}

async function request(gateway: string, deadline_ms: number, queries: Query[]): Promise<Result[]> {
  const body = JSON.stringify({ deadline_ms, queries });
  const headers = { "content-type": "application/json" };
  const response = await fetch(`${gateway}/v1/requests`, { method: "POST", headers, body });
  const answer = (await response.json()) as { results?: Result[]; error?: string };
  if (!answer.results) throw new Error(`${response.status}: ${answer.error}`);
  return answer.results;
}

function outcome(result: Result): string {
  if (result.status === "hit" || result.status === "miss") return result.late ? "late" : "met";
  return result.status;
}

const gateway = process.argv[2] ?? "http://127.0.0.1:8080";
const deadline_ms = Number(process.argv[3] ?? 200);
const run = Date.now(); // keys of its own, which are not cached yet
// Half of the keys are wanted in half of the time. Each query has one key, so that each can be
// refused alone.
const queries = Array.from({ length: 20 }, (_, at): Query => {
  const query = { backend: "ranking", keys: [`typescript:${run}:${at}`] };
  return at % 2 ? query : { ...query, deadline_ms: deadline_ms / 2 };
});
const results = await request(gateway, deadline_ms, queries);
const count = (wanted: string) => results.filter((result) => outcome(result) === wanted).length;
const [met, late, rejected] = [count("met"), count("late"), count("rejected")];
console.log(`${results.length} requests: ${met} met, ${late} late, ${rejected} rejected`);
const first = results.find((result) => result.status === "rejected");
if (first) console.log(`${first.key} was expected after ${first.expected_ms?.toFixed(1)} ms`);
if (met + late + rejected < results.length) process.exitCode = 1;
