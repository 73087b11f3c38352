#!/usr/bin/env bash
# The measurements of docs/benchmarks.md, each as JSON on stdout; run `make build` first.
#
#   scripts/bench.sh              every part
#   scripts/bench.sh trace        hits on the orm-busy trace, static budgets and shared-lru
#   scripts/bench.sh demo         RobinHood against shared-lru through backend slowdowns, seeds 1 to 5 (about an hour)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sherwood=target/release/sherwood
cache=127.0.0.1:22311
server=

stop_server() {
  [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; }
  server=
}
trap stop_server EXIT

# Starts a server with the given flags and waits, at most 10 s, until it says that it is ready.
start_server() {
  local log tries=100
  log=$(mktemp)
  "$sherwood" serve "$@" 2>"$log" &
  server=$!
  until grep -q '^ready' "$log"; do
    tries=$((tries - 1))
    if [ "$tries" = 0 ] || ! kill -0 "$server" 2>/dev/null; then
      cat "$log" >&2
      return 1
    fi
    sleep 0.1
  done
  rm -f "$log"
}

trace() {
  local policy
  for policy in static shared-lru; do
    echo "trace: orm-busy, $policy" >&2
    start_server --config examples/orm-busy.toml --memcached "$cache" --admin off --threads 1 --eviction lru \
      --policy "$policy"
    "$sherwood" load --target "memcached://$cache" --trace orm-busy --look-aside --connections 1 --pipeline 1 \
      --value-size 100 --json
    stop_server
  done
}

demo() {
  local seed
  for seed in 1 2 3 4 5; do
    echo "demo: seed $seed" >&2
    "$sherwood" demo --headless --json --duration 300s --compare shared-lru,robinhood --seed "$seed"
  done
}

parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(trace demo)
for part in "${parts[@]}"; do
  case "$part" in
    trace | demo) "$part" ;;
    *)
      echo "scripts/bench.sh: no part named $part; there are: trace, demo" >&2
      exit 2
      ;;
  esac
done
