#!/usr/bin/env bash
# Packs a static binary with what belongs to it, for systems without a package.
#
#   scripts/dist/static.sh target/x86_64-unknown-linux-musl/packaged/sherwood target/dist
#
# Its debug information is in a file beside the archive. The binary has to run on this machine.
set -euo pipefail
umask 022

binary=$(realpath "$1")
out=$(realpath -m "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

name=sherwood-$("$binary" --version | cut -d' ' -f2)-$(uname -m)-linux-static
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/$name

mkdir -p "$root/completions" "$out"
objcopy --strip-debug "$binary" "$root/sherwood"
"$binary" man "$root/man"
"$binary" completions bash >"$root/completions/sherwood.bash"
"$binary" completions zsh >"$root/completions/_sherwood"
"$binary" completions fish >"$root/completions/sherwood.fish"
install -D -m 644 -t "$root/systemd" deploy/systemd/sherwood.{service,socket,toml}
install -m 644 -t "$root" LICENSE CHANGELOG.md sherwood.example.toml
scripts/dist/licences.py >"$root/licences"

tar -C "$work" --owner=0 --group=0 --sort=name -czf "$out/$name.tar.gz" "$name"
objcopy --only-keep-debug --compress-debug-sections "$binary" "$out/$name.debug"
