#!/usr/bin/env bash
# Reports what a goal of the Makefile lacks on this machine, with the command that installs it.
#
#   scripts/need.sh build   rustup (or a recent cargo) and a C compiler: all that `make build` and `make demo` need
#   scripts/need.sh dist    the same, and the tools that build packages, which it installs if permitted
#   scripts/need.sh test    rustup and a C compiler, and Debian's packages for the tests, which it installs if permitted
#   scripts/need.sh fuzz    a nightly compiler, which it installs by rustup, and a C++ compiler
#   scripts/need.sh miri    a nightly compiler with Miri, which it installs by rustup
#   scripts/need.sh stores  what `test` needs, and servers in Java, which it installs if permitted
#   scripts/need.sh elsewhere   emulators of other processors and compilers for them, which it installs if permitted
#
# Exit status: 0 when nothing is missing, 2 otherwise.
set -euo pipefail

rust_version_min=1.95.0
missing=

# Records a missing item and the command that installs it; all are printed at the end, after apt's output.
lack() {
  missing+="missing: $1"$'\n'"    $2"$'\n'
}

has_rust() {
  command -v cargo >/dev/null || return 1
  # rustup brings the version that rust-toolchain.toml names by itself; another cargo has to be recent enough.
  command -v rustup >/dev/null && return 0
  local version
  version=$(cargo --version | cut -d' ' -f2)
  [ "$(printf '%s\n' "$rust_version_min" "$version" | sort -V | head -n 1)" = "$rust_version_min" ]
}

# SQLite needs the C library's headers too.
has_c_compiler() {
  command -v cc >/dev/null && printf '#include <stdio.h>\nint main(void) { return 0; }\n' |
    cc -x c -o /dev/null - 2>/dev/null
}

has_python_venv() {
  command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null
}

# The Debian packages that the building of packages lacks.
dist_packages() {
  has_c_compiler || printf 'gcc libc6-dev '
  command -v objcopy >/dev/null || printf 'binutils '
  command -v python3 >/dev/null || printf 'python3 '
  command -v musl-gcc >/dev/null || printf 'musl-tools '
}

# The Debian packages that the tests lack.
test_packages() {
  has_c_compiler || printf 'gcc libc6-dev '
  command -v objcopy >/dev/null || printf 'binutils '
  command -v git >/dev/null || printf 'git '
  command -v memcached >/dev/null || printf 'memcached '
  command -v memccapable >/dev/null || printf 'libmemcached-tools '
  command -v redis-server >/dev/null || printf 'redis-server '
  command -v redis-cli >/dev/null || printf 'redis-tools '
  command -v curl >/dev/null || printf 'curl ca-certificates '
  command -v openssl >/dev/null || printf 'openssl '
  command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || printf 'mariadb-server '
  ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || command -v postgres >/dev/null || printf 'postgresql '
  command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || printf 'pgbouncer '
  command -v ip >/dev/null || [ -x /usr/sbin/ip ] || printf 'iproute2 '
  command -v nats-server >/dev/null || [ -x /usr/sbin/nats-server ] || printf 'nats-server '
  command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || printf 'nginx-light '
  has_python_venv || printf 'python3 python3-venv '
  php -r 'exit(extension_loaded("memcached") ? 0 : 1);' 2>/dev/null || printf 'php-cli php-memcached '
  ruby -e 'require "dalli"' 2>/dev/null || printf 'ruby ruby-dalli '
  ruby -e 'require "active_support"' 2>/dev/null || printf 'ruby-activesupport '
  # The mechanisms of libmemcached's logins.
  ls /usr/lib/*/sasl2/libplain.so >/dev/null 2>&1 || printf 'libsasl2-modules '
  command -v go >/dev/null || printf 'golang-go '
  command -v node >/dev/null || printf 'nodejs '
  command -v npm >/dev/null || printf 'npm '
  command -v chromium >/dev/null || printf 'chromium '
  command -v promtool >/dev/null || printf 'prometheus '
  command -v tmux >/dev/null || printf 'tmux '
  command -v systemd-analyze >/dev/null || printf 'systemd '
}

# The Debian packages that tests on other processors lack.
elsewhere_packages() {
  command -v qemu-aarch64 >/dev/null && command -v qemu-s390x >/dev/null || printf 'qemu-user '
  command -v aarch64-linux-gnu-gcc >/dev/null || printf 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross '
  command -v s390x-linux-gnu-gcc >/dev/null || printf 'gcc-s390x-linux-gnu libc6-dev-s390x-cross '
}

# The Debian packages that the tests of connectors with servers in Java lack.
stores_packages() {
  command -v java >/dev/null || printf 'openjdk-17-jre-headless '
  command -v mvn >/dev/null || printf 'maven '
  [ -e /usr/share/java/zookeeper.jar ] || printf 'libzookeeper-java '
}

# Runs a command as root, without ever asking for a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_be_root() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# Prints the command that installs the given packages for the current user.
apt_line() {
  local line="apt-get update && apt-get install -y --no-install-recommends $*"
  if [ "$(id -u)" = 0 ]; then
    echo "$line"
  elif command -v sudo >/dev/null; then
    echo "sudo sh -c '$line'"
  else
    echo "su -c '$line'"
  fi
}

# Installs the packages that the command $1 prints, if permitted.
install_debian_packages() {
  local packages
  packages=$("$1")
  [ -n "$packages" ] || return 0
  if command -v apt-get >/dev/null && may_be_root; then
    printf 'installing: %s\n' "${packages% }" >&2
    as_root apt-get update -qq </dev/null >/dev/null || true
    # shellcheck disable=SC2086 # a list of package names, one word each
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages \
      </dev/null >/dev/null || true
    packages=$("$1")
    [ -n "$packages" ] || return 0
  fi
  lack "${packages% } (Debian packages)" "$(apt_line "${packages% }")"
}

need_rust() {
  has_rust && return 0
  local command="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  command -v curl >/dev/null || command="$(apt_line curl ca-certificates) && $command"
  lack "rustup, which brings Rust $rust_version_min" "$command"
}

need_c_compiler() {
  has_c_compiler || lack "a C compiler" "$(apt_line gcc libc6-dev)"
}

# The standard library for static programs.
need_musl() {
  local target
  target=$(uname -m)-unknown-linux-musl
  if ! command -v rustup >/dev/null; then
    lack "rustup, which brings Rust's library for $target" "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  elif ! rustup target list --installed | grep -qx "$target"; then
    rustup target add "$target" >&2 || lack "Rust's library for $target" "rustup target add $target"
  fi
}

# libFuzzer is written in C++ and needs features of a nightly compiler.
need_fuzzing() {
  command -v c++ >/dev/null || lack "a C++ compiler" "$(apt_line g++)"
  if ! command -v rustup >/dev/null; then
    lack "rustup, which brings a nightly compiler" "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  elif ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal >&2 ||
      lack "a nightly compiler" "rustup toolchain install nightly --profile minimal"
  fi
}

need_miri() {
  if ! command -v rustup >/dev/null; then
    lack "rustup, which brings a nightly compiler" "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"
  elif ! rustup run nightly cargo miri --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal --component miri,rust-src >&2 ||
      lack "a nightly compiler with Miri" "rustup toolchain install nightly --component miri,rust-src"
  fi
}

case "${1:-}" in
  build)
    need_rust
    need_c_compiler
    ;;
  dist)
    need_rust
    command -v dpkg-deb >/dev/null || lack "dpkg-deb, to build a Debian package" "a Debian system, or the package dpkg of this one"
    install_debian_packages dist_packages
    need_musl
    ;;
  test)
    need_rust
    install_debian_packages test_packages
    ;;
  stores)
    need_rust
    install_debian_packages test_packages
    install_debian_packages stores_packages
    ;;
  fuzz)
    need_fuzzing
    ;;
  miri)
    need_miri
    ;;
  elsewhere)
    need_rust
    need_c_compiler
    install_debian_packages elsewhere_packages
    ;;
  *)
    echo "usage: scripts/need.sh build|dist|test|docs|stores|fuzz|miri|elsewhere" >&2
    exit 2
    ;;
esac
[ -z "$missing" ] || {
  printf '%s' "$missing" >&2
  exit 2
}
