#!/usr/bin/env bash
# The measurements of docs/benchmarks.md, each as JSON lines on stdout; run `make build` first.
#
#   scripts/bench.sh              every part
#   scripts/bench.sh trace        hits on the orm-busy trace against an exact LRU's: static budgets and shared-lru
#   scripts/bench.sh resize       time to reach a budget, and latencies of hits meanwhile
#   scripts/bench.sh gateway      cost of a request of 50 keys, beside a multi-get to memcached; give the latest release
#                                 as MEMCACHED=/path/to/memcached
#   scripts/bench.sh peers        throughput, processor time of a request and tail beside memcached, Pogocache, Redis and Valkey (half an
#                                 hour): MEMCACHED, POGOCACHE, REDIS and VALKEY name their binaries, a server that is not there is left
#                                 out; a summary goes to stderr, and scripts/peers.py --help says how to run one case
#   scripts/bench.sh floor        processor time of a request of 100 bytes, one and 16 at a time, beside Pogocache and beside servers
#                                 without a cache, which show the least that a request costs (6 minutes); not part of "every"
#   scripts/bench.sh reshape      a full cache of 2 GiB gives up a tenth, beside the peers, 20 times in one server, and then changes all the time
#                                 (half an hour); the same variables, and scripts/reshape.py --help
#   scripts/bench.sh items        bytes that an item takes beside key and value, of the same servers at two million items
#   scripts/bench.sh connectors   each connector beside the client library used directly (ten minutes): Debian's mariadb-server, postgresql,
#                                 redis-server and memcached are started for it; CONNECTORS names one of mysql, postgres, redis, memcached, http
#   scripts/bench.sh ingest       reports and OpenTelemetry spans that a node takes for a second of its processor time (2 minutes)
#   scripts/bench.sh engine       the engine in one process beside quick_cache, moka and hashlink
#   scripts/bench.sh reclaim      nanoseconds to evict an item for a smaller budget, with values of 100 bytes, 1 and 4 KiB
#   scripts/bench.sh ghost        cost of a sampled miss ratio curve per access, and its error
#   scripts/bench.sh between      time of a decision between 2 to 1,000 tenants, its gain and its bound, by curves and policy
#   scripts/bench.sh lcs          an LRU simulated on a trace of ten million gets, beside libCacheSim: LIBCACHESIM names its program
#                                 cachesim, which is left out when it is not there
#   scripts/bench.sh demo         RobinHood against shared-lru through backend slowdowns, seeds 1 to 5 (about an hour)
#   scripts/bench.sh real         before MariaDB, PostgreSQL and an HTTP service: RobinHood against shared-lru while one is slow, the same with
#                                 memcached and Redis instances that are resized, a cold start with and without ramps, and a warm restart (an
#                                 hour and a half; root, for control groups, and Debian's mariadb-server, postgresql, memcached and redis-server)
#   scripts/bench.sh sim          the simulator on two threads: what a comparison of the paper's scenarios and policies takes with one seed, and
#                                 the frontier of these policies in onerf-spikes and onerf-random (one and a half to three hours; not part of "every")
#   scripts/bench.sh depth        shared-lru alone on seeds 101 to 105, which the depth of the slowdowns is set by (35 minutes); not part of "every"
#
# ROUNDS (5) is the number of times `resize`, `gateway`, `peers`, `floor`, `reshape`, `large`, `connectors`, `engine`, `reclaim`, `lcs` and `real` measure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sherwood=target/release/sherwood
cache=127.0.0.1:22311
admin=127.0.0.1:22380
rounds=${ROUNDS:-5}
scratch=$(mktemp -d)
server=

stop_server() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; }
  server=
}
trap 'stop_server; rm -rf "$scratch"' EXIT

# Waits, at most 10 s, until a command succeeds; gives up at once when the server has ended.
wait_for() {
  local tries=100
  until "$@" 2>/dev/null; do
    tries=$((tries - 1))
    if [ "$tries" = 0 ] || ! kill -0 "$server" 2>/dev/null; then
      return 1
    fi
    sleep 0.1
  done
}

# Starts a server with the given flags and waits until it says that it is ready; PIN is a command to run it under.
start_server() {
  local log=$scratch/server.log
  ${PIN:-} "$sherwood" serve "$@" 2>"$log" &
  server=$!
  wait_for grep -q '^ready' "$log" || {
    cat "$log" >&2
    return 1
  }
}

# The value of a field of a JSON document on stdin, such as latency_us.p50.
field() {
  python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."):
    value = value[name]
print(value)' "$1"
}

# replay POLICY THREADS CONNECTIONS [OPTIONS OF THE REFERENCE]: one pass over the trace, compared with an exact LRU.
replay() {
  local policy=$1 threads=$2 connections=$3
  shift 3
  echo "trace: orm-busy, $policy, $threads threads, $connections connections" >&2
  start_server --config examples/orm-busy.toml --memcached "$cache" --admin off --threads "$threads" --eviction lru \
    --policy "$policy"
  "$sherwood" load --target "memcached://$cache" --trace orm-busy --look-aside --connections "$connections" \
    --pipeline 1 --value-size 100 --json >"$scratch/report.json"
  stop_server
  scripts/exact_lru.py crates/workload/data/cache2k/orm-busy.trace.xz --total-bytes $((4 << 20)) "$@" \
    --check "$scratch/report.json" --label "$policy, $threads threads, $connections connections"
}

# With one connection hits are equal, key by key, whatever the threads. Two ask at the same time, so that a client may look
# for a key that it is about to set; that costs any cache hits.
trace() {
  replay static 1 1 --partitions 32
  replay shared-lru 1 1
  replay static 2 1 --partitions 32
  replay shared-lru 2 1
  replay static 2 2 --partitions 32 --points 0.5
  replay shared-lru 2 2 --points 0.5
}

# A configuration of 20 backends on stdout.
twenty_backends() {
  local i
  for i in $(seq -w 1 20); do
    printf '[[backend]]\nname = "p%s"\nprefix = "p%s/"\n' "$i" "$i"
  done
  cat <<TOML
[memory]
total = "1GiB"
[[listener]]
bind = "$cache"
route = "prefix"
[control]
policy = "static"
[admin]
bind = "$admin"
TOML
}

resize() {
  local round
  cargo build --quiet --release --locked -p sherwood-load --example resize
  twenty_backends >"$scratch/resize.toml"
  for round in $(seq "$rounds"); do
    echo "resize: round $round of $rounds" >&2
    start_server --config "$scratch/resize.toml"
    target/release/examples/resize "$cache" "$admin"
    stop_server
  done
}

# Keys of the gateway's measurement; all of them are cached.
keys=20000

# Sets every key, with near certainty: 30 times as many sets as keys.
fill() {
  "$sherwood" load --target "memcached://$cache" --keys "$keys" --key-size 20 --zipf 0 --value-size 1024 --get-ratio 0 \
    --ops $((30 * keys)) --pipeline 256 --json >/dev/null
}

# Seconds of processor time the server has used.
server_cpu_s() {
  python3 -c 'import os, sys
fields = open(f"/proc/{sys.argv[1]}/stat").read().rsplit(")", 1)[1].split()
print((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))' "$server"
}

# measure NAME COMMAND…: a closed loop for the cost of a request, then half of its rate for the latencies. The server has
# core 0, the load core 1; requests per core are counted by the processor time that the server used, so that a load which cannot
# fill its core does not count against it.
measure() {
  local name=$1 load cpu_s
  shift
  load=(taskset -c 1 "$@" --keys "$keys" --key-size 20 --batch 50 --duration 10s --json)
  cpu_s=$(server_cpu_s)
  "${load[@]}" --closed --connections 16 >"$scratch/closed.json"
  cpu_s=$(python3 -c "print($(server_cpu_s) - $cpu_s)")
  "${load[@]}" --rate "$(python3 -c "print(round($(field ops_per_s <"$scratch/closed.json") / 2))")" \
    --connections 64 >"$scratch/open.json"
  python3 - "$name" "$cpu_s" "$scratch" <<'PYTHON'
import json, sys
name, cpu_s, scratch = sys.argv[1:]
closed, opened = (json.load(open(f"{scratch}/{part}.json", encoding="utf-8")) for part in ("closed", "open"))
print(json.dumps({
    "name": name,
    "requests_per_core_s": round(closed["ops"] / float(cpu_s)),
    "requests_per_s": round(closed["ops_per_s"]),
    "core_ratio": round(float(cpu_s) / closed["duration_s"], 3),
    "open_requests_per_s": round(opened["ops_per_s"]),
    "p50_us": opened["latency_us"]["p50"],
    "p99_us": opened["latency_us"]["p99"],
    "late_p99_us": opened["late_p99_us"],
    "hit_ratio": min(closed["hit_ratio"], opened["hit_ratio"]),
    "errors": closed["errors"] + opened["errors"],
}))
PYTHON
}

gateway() {
  local round memcached=${MEMCACHED:-memcached}
  cat >"$scratch/gateway.toml" <<TOML
backend = [{ name = "kv" }]
[memory]
total = "256MiB"
[[listener]]
bind = "$cache"
backend = "kv"
[control]
policy = "static"
[admin]
bind = "$admin"
TOML
  for round in $(seq "$rounds"); do
    echo "gateway: round $round of $rounds" >&2
    PIN="taskset -c 0" start_server --config "$scratch/gateway.toml" --threads 1
    fill
    measure "gateway, with values" "$sherwood" load --target "http://$admin" --backend kv --values
    measure "gateway, values:false" "$sherwood" load --target "http://$admin" --backend kv
    measure "sherwood multi-get" "$sherwood" load --target "memcached://$cache" --get-ratio 1 --pipeline 1
    stop_server
    command -v "$memcached" >/dev/null || {
      echo "gateway: there is no $memcached to compare with; MEMCACHED names one" >&2
      continue
    }
    taskset -c 0 "$memcached" -l 127.0.0.1 -p "${cache#*:}" -U 0 -m 256 -t 1 -u nobody &
    server=$!
    wait_for bash -c "</dev/tcp/${cache/:/\/}"
    fill
    measure "memcached $("$memcached" -V | cut -d' ' -f2) multi-get" \
      "$sherwood" load --target "memcached://$cache" --get-ratio 1 --pipeline 1
    stop_server
  done
}

peers() {
  SHERWOOD=$sherwood ROUNDS=$rounds scripts/peers.py
}

floor() {
  cargo build --quiet --release --locked --manifest-path scripts/floor/Cargo.toml --target-dir scripts/floor/target
  SHERWOOD=$sherwood FLOOR=scripts/floor/target/release/floor ROUNDS=$rounds scripts/peers.py closed --values 100 --depths 1,16 \
    --servers sherwood,sherwood-redis,pogocache,pogocache-redis,floor,floor-rounds
}

reshape() {
  cargo build --quiet --release --locked -p sherwood-load --example timeline
  SHERWOOD=$sherwood ROUNDS=$rounds scripts/reshape.py
}

large() {
  SHERWOOD=$sherwood ROUNDS=$rounds scripts/large.py
}

items() {
  SHERWOOD=$sherwood scripts/items.py
}

ingest() {
  SHERWOOD=$sherwood ROUNDS=$rounds scripts/ingest.py
}

engine() {
  cargo run --quiet --release --locked --manifest-path scripts/engine/Cargo.toml -- throughput "$rounds" --json
}

connectors() {
  cargo run --quiet --release --locked --manifest-path scripts/connectors/Cargo.toml -- "$rounds" 2 "${CONNECTORS:-}"
}

reclaim() {
  local bytes
  for bytes in 100 1024 4096; do
    cargo run --quiet --release --locked --manifest-path scripts/engine/Cargo.toml -- reclaim 2048 "$bytes" "$rounds"
  done
}

ghost() {
  cargo run --quiet --release --locked -p sherwood-cache --example ghost
}

between() {
  cargo run --quiet --release --locked -p sherwood-policy --example between
}

# In turns, with a hundredth of the objects and with a tenth. The miss ratios must be equal.
lcs() {
  local round objects example=target/release/examples/lru trace=$scratch/zipf.oracleGeneral.bin
  local cachesim=
  cargo build --quiet --release --locked -p sherwood-cache --example lru
  "$example" draw "$trace"
  if command -v "${LIBCACHESIM:-cachesim}" >/dev/null; then
    cachesim=$(realpath "$(command -v "${LIBCACHESIM:-cachesim}")")
  else
    echo "lcs: there is no ${LIBCACHESIM:-cachesim} to compare with; LIBCACHESIM names one" >&2
  fi
  for round in $(seq "$rounds"); do
    echo "lcs: round $round of $rounds" >&2
    for objects in 10000 100000; do
      "$example" "$trace" "$objects" | sed "s/}$/,\"objects\":$objects}/"
      [ -n "$cachesim" ] || continue
      # The program writes a file of results into the current directory.
      (cd "$scratch" && "$cachesim" "$trace" oracleGeneral lru "$objects" --ignore-obj-size 1 --num-thread 1) 2>&1 |
        sed -nE "s/.* ([0-9]+) req, miss ratio ([0-9.]+), throughput ([0-9.]+) MQPS.*/{\"case\":\"libCacheSim lru\",\"gets\":\1,\"miss_ratio\":\2,\"gets_per_s\":\3e6,\"objects\":$objects}/p"
    done
  done
}

demo() {
  local seed
  for seed in 1 2 3 4 5; do
    echo "demo: seed $seed" >&2
    "$sherwood" demo --headless --json --duration 300s --compare shared-lru,robinhood --seed "$seed"
  done
}

real() {
  local script
  for script in slowed resized coldstart; do
    echo "real: $script" >&2
    SHERWOOD=$sherwood "scripts/real/$script.py" --rounds "$rounds"
  done
  SHERWOOD=$sherwood scripts/real/restart.py
}

# simulated NAME COMMAND…: a simulation without kept results; prints its time, memory and results.
simulated() {
  local name=$1
  shift
  echo "sim: $name" >&2
  python3 - "$name" "$sherwood" sim "$@" --threads 2 --json --results "$scratch/sim-$name" <<'PYTHON'
import json, resource, subprocess, sys, time
name, *command = sys.argv[1:]
began = time.monotonic()
found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
wall_s = time.monotonic() - began
used = resource.getrusage(resource.RUSAGE_CHILDREN)
# The runs of a comparison are too long for a line.
summary = found["summary"] if isinstance(found, dict) else found
print(json.dumps({
    "name": name,
    "wall_s": round(wall_s, 1),
    "cpu_s": round(used.ru_utime + used.ru_stime, 1),
    "resident_mib": used.ru_maxrss >> 10,
    "found": summary,
}))
PYTHON
}

# Not among the parts that run by default, as it takes longer than an hour.
sim() {
  local scenario
  simulated compare compare --seeds 1
  for scenario in onerf-spikes onerf-random; do
    simulated "frontier-$scenario" frontier --scenario "$scenario" --sample 1/4 --set minutes=15+180
  done
}

# Sets the depth of the demo's limits: shared-lru alone, on seeds of its own. Not among the parts that run by default.
depth() {
  local seed
  for seed in 101 102 103 104 105; do
    echo "depth: seed $seed" >&2
    "$sherwood" demo --headless --json --duration 300s --policy shared-lru --seed "$seed"
  done
}

parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(trace resize gateway peers reshape large items connectors ingest engine reclaim ghost between lcs demo real)
for part in "${parts[@]}"; do
  case "$part" in
    trace | resize | gateway | peers | floor | reshape | large | items | connectors | ingest | engine | reclaim | ghost | between | lcs | demo | real | sim | depth) "$part" ;;
    *)
      echo "scripts/bench.sh: no part named $part; there are: trace, resize, gateway, peers, floor, reshape, large, items, connectors, ingest, engine, reclaim, ghost, between, lcs, demo, real, sim, depth" >&2
      exit 2
      ;;
  esac
done
