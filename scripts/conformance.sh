#!/usr/bin/env bash
# Runs other projects' clients, and their tests of their own servers, against a node.
#
#   scripts/conformance.sh [SUITE …]   all of them, or some: see tests/conformance/README.md
#
# SHERWOOD is the binary, target/release/sherwood unless it is set. What a suite needs is fetched into target/conformance: Debian's
# source packages by apt-get (nothing is installed; MEMCACHED_SOURCE and REDIS_SOURCE name unpacked ones instead), clients by pip, npm, go
# and cargo. A suite whose tools are missing is skipped with a message. Exit status: 0 when all that ran passed, 1 when
# something failed, 2 when a suite that was asked for cannot run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all=(memccapable memcached redis redis_py pymemcache_ pylibmc_ php dalli django goredis gomemcache ioredis node_redis memjs spymemcached redis_rs memcache tenants redis_login)
work=$PWD/target/conformance
here=$PWD/tests/conformance
sherwood=$(realpath -m "${SHERWOOD:-target/release/sherwood}")
server=
asked=

memcached_sha256=c383a2ad8f973b627c3de472702f46ee33b402750de4fd2d25cef65a00140110
redis_sha256=4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982

# Ends a suite that cannot run.
missing() {
  echo "  missing: $1" >&2
  exit 2
}

need() {
  command -v "$1" >/dev/null || missing "$1 ($2)"
}

# A node with one listener of each protocol; sets memcached_port and redis_port.
start_server() {
  local log=$work/server.log _
  "$sherwood" serve --memory 1GiB "$@" --memcached 127.0.0.1:0 --redis 127.0.0.1:0 --admin off --threads 2 2>"$log" &
  server=$!
  for _ in $(seq 300); do
    memcached_port=$(sed -n 's/^ready .*memcached=127\.0\.0\.1:\([0-9]*\).*/\1/p' "$log")
    redis_port=$(sed -n 's/^ready .*redis=127\.0\.0\.1:\([0-9]*\).*/\1/p' "$log")
    [ -z "$memcached_port" ] || [ -z "$redis_port" ] || return 0
    sleep 0.1
  done
  echo "  the node does not start: $(cat "$log")" >&2
  exit 1
}

# Fetches the upstream part of a Debian source package: name, version, suite of Debian, file, SHA-256, and where to unpack.
fetch_source() {
  local apt=$work/apt-$1
  need apt-get "or $(tr '[:lower:]' '[:upper:]' <<<"$1")_SOURCE with the unpacked source"
  mkdir -p "$apt/parts" "$apt/lists/partial"
  # Lists of source packages, kept apart from the system's.
  printf '%s\n' "Types: deb-src" "URIs: http://deb.debian.org/debian" "Suites: $3" "Components: main" \
    "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg" >"$apt/parts/debian.sources"
  local options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts" -o "Dir::State::Lists=$apt/lists")
  # Only one file is used, and its checksum is verified.
  (cd "$apt" && apt-get -qq "${options[@]}" update && apt-get -qq "${options[@]}" source --download-only "$1=$2") \
    >/dev/null 2>&1 || true
  [ -f "$apt/$4" ] || missing "Debian's source package $1 $2"
  sha256sum --quiet -c - <<<"$5  $apt/$4" || missing "$4 with the checksum it should have"
  rm -rf "$6.new" && mkdir -p "$6.new"
  tar -xf "$apt/$4" -C "$6.new" --strip-components=1
  mv "$6.new" "$6"
}

# Runs a program that says "ok" or "not ok" of each answer, and counts.
run_program() {
  local name=$1 said=$work/$1.log status=0
  shift
  timeout 900 "$@" >"$said" 2>&1 || status=$?
  local passed failed
  passed=$(grep -ac '^ok' "$said" || true)
  failed=$(grep -ac '^not ok' "$said" || true)
  grep -a '^not ok' "$said" || true
  [ "$status" = 0 ] || tail -n 5 "$said"
  echo "$name: $passed passed, $failed failed (log: target/conformance/$name.log)"
  [ "$status" = 0 ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

python_program() {
  prepare_python
  run_program "$1" "$python" "$here/python/$1.py" 127.0.0.1 "$2"
}

prepare_python() {
  python=target/venv/bin/python
  [ -e target/venv/ready ] || {
    need python3 "Debian package python3-venv"
    python3 -m venv --clear target/venv
    "$python" -m pip install --quiet --disable-pip-version-check -r scripts/python-requirements.txt
    touch target/venv/ready
  }
}

# A node whose clients log in as one of two tenants.
start_tenants() {
  local file=$work/tenants.toml secrets=$work/tenants.passwords
  (umask 077 && printf '%s\n' gold:12345678 silver:87654321 >"$secrets")
  {
    for protocol in memcached redis; do
      printf '[[listener]]\nprotocol = "%s"\nbind = "127.0.0.1:0"\nauth_file = "%s"\n' "$protocol" "$secrets"
    done
    printf '[[tenant]]\nname = "%s"\nusers = ["%s"]\n' gold gold silver silver
  } >"$file"
  start_server --config "$file" "$@"
}

# Programs of two clients, each as two tenants at the same time.
tenants() {
  prepare_python
  local of_gold status=0
  for program in "redis_py $redis_port" "pymemcache_ $memcached_port"; do
    read -r name port <<<"$program"
    run_program "gold-$name" "$python" "$here/python/$name.py" 127.0.0.1 "$port" gold 12345678 &
    of_gold=$!
    run_program "silver-$name" "$python" "$here/python/$name.py" 127.0.0.1 "$port" silver 87654321 || status=1
    wait "$of_gold" || status=1
  done
  return "$status"
}

# Both back ends of Django's cache framework.
django() {
  prepare_python
  local status=0
  run_program django-redis "$python" "$here/python/django_.py" 127.0.0.1 "$redis_port" redis || status=1
  run_program django-memcached "$python" "$here/python/django_.py" 127.0.0.1 "$memcached_port" memcached || status=1
  return "$status"
}

go_program() {
  need go "https://go.dev/dl"
  (cd "$here/go" && go build -o "$work/bin/$1" "./$1") || missing "$1, which does not build"
  run_program "$1" "$work/bin/$1" 127.0.0.1 "$2"
}

node_program() {
  need npm "Node.js 20 or later"
  rm -rf "$work/node" && cp -r "$here/node" "$work/node"
  (cd "$work/node" && npm ci --silent --no-audit --no-fund) || missing "the packages of $1"
  run_program "$1" node "$work/node/$1.mjs" 127.0.0.1 "$2"
}

# PHP's session handler and client, as packaged.
php() {
  need php "Debian packages php-cli php-memcached libsasl2-modules"
  command php -r 'exit(extension_loaded("memcached") ? 0 : 1);' || missing "php-memcached (a Debian package)"
  run_program php php "$here/php/session.php" 127.0.0.1 "$memcached_port"
}

dalli() {
  need ruby "Debian packages ruby and ruby-dalli"
  ruby -e 'require "dalli"' 2>/dev/null || missing "ruby-dalli (a Debian package)"
  run_program dalli ruby "$here/ruby/dalli_.rb" 127.0.0.1 "$memcached_port"
}

spymemcached() {
  need java "Debian package default-jdk-headless"
  need mvn "Debian package maven"
  local jars=$work/java/jars
  [ -d "$jars" ] || {
    rm -rf "$work/java" && mkdir -p "$work/java" && cp "$here/java/pom.xml" "$work/java"
    (cd "$work/java" && mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
      "-DoutputDirectory=$jars.part") >"$work/java/mvn.log" 2>&1 || missing "spymemcached from Maven Central"
    mv "$jars.part" "$jars"
  }
  run_program spymemcached java -cp "$jars/*" "$here/java/Spy.java" 127.0.0.1 "$memcached_port"
}

# pylibmc's program by both protocols of memcached.
pylibmc_() {
  python_program pylibmc_ "$memcached_port"
  run_program pylibmc_binary "$python" "$here/python/pylibmc_.py" 127.0.0.1 "$memcached_port" binary
}

rust_program() {
  CARGO_TARGET_DIR=$work/rust cargo build --quiet --locked --manifest-path "$here/rust/Cargo.toml" --bin "$1" ||
    missing "$1, which does not build"
  run_program "$1" "$work/rust/debug/$1" 127.0.0.1 "$2"
}

memccapable() {
  need memccapable "Debian package libmemcached-tools"
  local said=$work/memccapable.log
  # Both protocols.
  command memccapable -h 127.0.0.1 -p "$memcached_port" >"$said" 2>&1 || true
  grep -a 'FAIL' "$said" || true
  echo "memccapable: $(grep -ac '\[pass\]' "$said" || true) passed (log: target/conformance/memccapable.log)"
  grep -q 'All tests passed' "$said"
}

# Each file starts servers of its own, by memcached's command line, which memcached-debug translates.
memcached() {
  need perl "Debian package perl"
  local source=${MEMCACHED_SOURCE:-$work/memcached} run=$work/memcached-run name status failed=0 passed=0
  [ -d "$source/t" ] || fetch_source memcached 1.6.45-1 sid memcached_1.6.45.orig.tar.xz "$memcached_sha256" "$source"
  rm -rf "$run" && mkdir -p "$run" && cp -r "$source/t" "$run/" && cp "$here"/memcached/{memcached-debug,timedrun} "$run/"
  # A server with debugging commands can be told that time has passed; others have to wait.
  sed -i 's/^    print \$sock "debugtime \$move\\r\\n";$/    MemcachedTest::sleep($move + 0.1); return;/' "$run/t/lib/MemcachedTest.pm"
  while read -r name; do
    status=0
    (cd "$run" && SHERWOOD=$sherwood timeout 300 perl -It/lib "t/$name.t") >"$run/$name.log" 2>&1 || status=$?
    passed=$((passed + $(grep -ac '^ok' "$run/$name.log" || true)))
    if ! diff <(sed -n "s/^$name \([0-9]*\) #.*/\1/p" "$here/memcached/differs") \
      <(sed -n 's/^not ok \([0-9]*\).*/\1/p' "$run/$name.log") >/dev/null || { [ "$status" -gt 100 ]; } ||
      ! grep -aq '^ok' "$run/$name.log"; then
      failed=$((failed + 1))
      echo "$name: fails otherwise than tests/conformance/memcached/differs says (log: target/conformance/memcached-run/$name.log)"
    fi
  done <"$here/memcached/files"
  echo "memcached: $passed passed, $(grep -c '^[a-z]' "$here/memcached/differs") differ as is known, $failed files failed"
  [ "$failed" = 0 ]
}

redis() {
  prepare_redis
  redis_units redis 190 unit/type/string unit/type/incr unit/expire unit/protocol unit/multi unit/bitops
}

# The same as one of two tenants: every connection of the suite logs in first. The unit of the protocol is left out, since it
# opens connections of its own.
redis_login() {
  prepare_redis
  sed -i 's/^    fconfigure $fd -translation binary$/&; puts -nonewline $fd "AUTH gold 12345678\\r\\n"; flush $fd; gets $fd/' \
    "$run/tests/support/redis.tcl"
  redis_units redis_login 130 unit/type/string unit/type/incr unit/expire
}

# Sets run, the folder of Redis's test suite.
prepare_redis() {
  need tclsh "Debian package tcl"
  local source=${REDIS_SOURCE:-$work/redis-7.0.15}
  run=$work/redis-run
  [ -d "$source/tests" ] || fetch_source redis '5:7.0.15-1~deb12u7' bookworm redis_7.0.15.orig.tar.gz "$redis_sha256" "$source"
  rm -rf "$run" && mkdir -p "$run" && cp -r "$source/tests" "$run/"
  # The suite calls FUNCTION FLUSH on an external server.
  sed -i 's/^    r function flush$/    catch {r function flush}/' "$run/tests/support/server.tcl"
}

# Runs units of Redis's suite, of which at least so many tests have to pass: name, number, units.
redis_units() {
  local name=$1 least=$2 said=$work/$1.log passed failed
  shift 2
  # Tags are of tests that need what a cache of strings does not have: DEBUG, replicas, a maxmemory that can be set.
  (cd "$run" && tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$redis_port" --singledb --durable --clients 1 \
    --ignore-encoding --ignore-digest --tags "-needs:debug -needs:repl -needs:config-maxmemory" --skipfile "$here/redis/left_out" \
    $(printf -- '--single %s ' "$@")) >"$said" 2>&1 || true
  sed -i 's/\x1b\[[0-9;]*m//g' "$said"
  passed=$(grep -ac '^\[ok\]' "$said" || true)
  failed=$(grep -ac '^\[err\]\|^\[exception\]' "$said" || true)
  grep -a -A 3 '^\[err\]\|^\[exception\]' "$said" || true
  echo "$name: $passed passed, $failed failed (log: target/conformance/$name.log)"
  [ "$failed" = 0 ] && [ "$passed" -ge "$least" ]
}

# One suite, against a node of its own: in a subshell, which ends the node.
suite() (
  set -e
  trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT
  case $1 in
    redis) start_server --max-item-size 16MiB ;;
    memcached) ;;
    tenants) start_tenants ;;
    redis_login) start_tenants --max-item-size 16MiB ;;
    *) start_server ;;
  esac
  case $1 in
    memccapable | memcached | redis | redis_login | tenants | django | php | dalli | pylibmc_ | spymemcached) "$1" ;;
    redis_py) python_program "$1" "$redis_port" ;;
    pymemcache_) python_program "$1" "$memcached_port" ;;
    goredis) go_program "$1" "$redis_port" ;;
    gomemcache) go_program "$1" "$memcached_port" ;;
    ioredis | node_redis) node_program "$1" "$redis_port" ;;
    memjs) node_program "$1" "$memcached_port" ;;
    redis_rs) rust_program "$1" "$redis_port" ;;
    memcache) rust_program "$1" "$memcached_port" ;;
  esac
)

[ -x "$sherwood" ] || missing "$sherwood; make build brings it"
mkdir -p "$work/bin"
suites=("${all[@]}")
[ $# = 0 ] || { suites=("$@") asked=yes; }
for name in "${suites[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || missing "a suite called $name; there are ${all[*]}"
done
failed=() skipped=()
for name in "${suites[@]}"; do
  # Inside a condition, errors would not end the subshell.
  set +e
  suite "$name"
  status=$?
  set -e
  case $status in
    0) ;;
    2) skipped+=("$name") ;;
    *) failed+=("$name") ;;
  esac
done
echo "conformance: $((${#suites[@]} - ${#failed[@]} - ${#skipped[@]})) of ${#suites[@]} suites passed; failed: ${failed[*]:-none}; not run: ${skipped[*]:-none}"
[ ${#failed[@]} = 0 ] || exit 1
[ -z "$asked" ] || [ ${#skipped[@]} = 0 ] || exit 2
