#!/usr/bin/env bash
# Runs other projects' test suites against a listener.
#
#   scripts/conformance.sh redis [SHERWOOD]   Redis 7.0's own units for strings, increments, expiry and the protocol
#
# SHERWOOD is the binary to test, target/release/sherwood unless given. Needs tclsh, and apt-get for the suite, which comes
# from Debian's source package (nothing is installed) into target/conformance; REDIS_SOURCE names an unpacked one instead.
# Takes half a minute. Exit status: 0 when every test passed that is not listed below, 1 when one failed, 2 when something is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=target/conformance
units=(unit/type/string unit/type/incr unit/expire unit/protocol)
# Tags of tests that need what a cache of strings does not have: Redis's DEBUG command, replicas, its own files.
tags="-needs:debug -needs:repl"

# Tests that are left out, each as its suite calls it. All need a command that is answered as unknown:
left_out() {
  cat <<'EOF'
INCR fails against a key holding a list
INCRBYFLOAT fails against a key holding a list
raw protocol response
raw protocol response - deferred
raw protocol response - multiline
test argument rewriting - issue 9598
Regression for a crash with blocking ops and pipelining
MGET against non-string key
/^SETBIT
/^GETBIT
SETRANGE against key with wrong type
Extended SET GET with incorrect type should result in wrong type error
/^LCS
EXPIRE - write on expire should work
EOF
  # lists: RPUSH, LPUSH, BLPOP; sets: SADD, SRANDMEMBER; bits: SETBIT, GETBIT; LCS; MULTI.
}

missing() {
  echo "missing: $1" >&2
  exit 2
}

# Puts the suite into $work/redis.
fetch_redis() {
  [ -d "$work/redis/tests" ] && return 0
  mkdir -p "$work"
  if [ -n "${REDIS_SOURCE:-}" ]; then
    mkdir -p "$work/redis" && cp -r "$REDIS_SOURCE/tests" "$work/redis/"
    return 0
  fi
  command -v apt-get >/dev/null || missing "apt-get, or REDIS_SOURCE with an unpacked Redis 7.0"
  # Lists of source packages, kept apart from the system's.
  local apt="$PWD/$work/apt"
  mkdir -p "$apt/parts" "$apt/lists/partial"
  local file
  for file in /etc/apt/sources.list.d/*.sources; do
    if [ -e "$file" ]; then sed 's/^Types:.*/Types: deb-src/' "$file" >"$apt/parts/$(basename "$file")"; fi
  done
  if [ -s /etc/apt/sources.list ]; then sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$apt/parts/main.list"; fi
  local options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts" -o "Dir::State::Lists=$apt/lists")
  (
    cd "$apt"
    apt-get -qq "${options[@]}" update
    apt-get -qq "${options[@]}" source --download-only redis
  ) >/dev/null || missing "Debian's source package redis"
  mkdir -p "$work/unpacking"
  tar -xf "$apt"/redis_*.orig.tar.gz -C "$work/unpacking" --strip-components=1
  mv "$work/unpacking" "$work/redis"
}

# The suite empties the functions of a foreign server, and wants a client program only to be there.
adapt_redis() {
  sed -i 's/^    r function flush$/    catch {r function flush}/' "$work/redis/tests/support/server.tcl"
  left_out >"$work/left_out"
}

redis() {
  local sherwood=${1:-target/release/sherwood}
  [ -x "$sherwood" ] || missing "$sherwood; make build brings it"
  command -v tclsh >/dev/null || missing "tclsh (Debian package tcl)"
  fetch_redis
  adapt_redis
  local log="$work/server.log"
  "$sherwood" serve --memory 1GiB --max-item-size 16MiB --redis 127.0.0.1:0 --admin off --threads 1 2>"$log" &
  local server=$!
  # shellcheck disable=SC2064 # the process is known now
  trap "kill $server 2>/dev/null || true" EXIT
  local port=
  for _ in $(seq 200); do
    port=$(sed -n 's/^ready .*redis=127\.0\.0\.1:\([0-9]*\).*/\1/p' "$log")
    [ -n "$port" ] && break
    sleep 0.1
  done
  [ -n "$port" ] || missing "a running server: $(cat "$log")"
  local singles=() unit
  for unit in "${units[@]}"; do singles+=(--single "$unit"); done
  local said="$PWD/$work/redis.log" list="$PWD/$work/left_out"
  (cd "$work/redis" && tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$port" --singledb --durable --clients 1 \
    --ignore-encoding --ignore-digest --tags "$tags" --skipfile "$list" "${singles[@]}") >"$said" 2>&1 || true
  sed -i 's/\x1b\[[0-9;]*m//g' "$said"
  local passed failed
  passed=$(grep -ac '^\[ok\]' "$said" || true)
  failed=$(grep -ac '^\[err\]\|^\[exception\]' "$said" || true)
  grep -a -A 3 '^\[err\]\|^\[exception\]' "$said" || true
  echo "redis: $passed passed, $failed failed (log: $work/redis.log)"
  [ "$failed" = 0 ] && [ "$passed" -ge 140 ]
}

case "${1:-}" in
  redis) redis "${2:-}" ;;
  *)
    echo "usage: scripts/conformance.sh redis [SHERWOOD]" >&2
    exit 2
    ;;
esac
