#!/usr/bin/env bash
# Runs fuzz targets under libFuzzer, one after the other: see fuzz/src/lib.rs.
#
#   scripts/fuzz.sh [<target>|all [<seconds each>]]     default: all, 60
#
# Inputs that reach new branches are collected in target/fuzz/corpus; the kept corpus is only read. An input that fails is
# written to fuzz/artifacts/<target>/, and the command that replays it is printed. Exit status: 0 when nothing failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fuzz=${CARGO_FUZZ:-cargo-fuzz}
targets=${1:-all}
seconds=${2:-60}
# As a subcommand of cargo, the tool expects its own name first.
build=(--fuzz-dir fuzz --target-dir target/fuzz)

[ "$targets" != all ] || targets=$("$fuzz" fuzz list --fuzz-dir fuzz)
for target in $targets; do
  gathered=target/fuzz/corpus/$target
  mkdir -p "$gathered"
  RUSTUP_TOOLCHAIN=nightly "$fuzz" fuzz run "${build[@]}" "$target" "$gathered" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -max_len=4096 -timeout=30 -print_final_stats=1
done
