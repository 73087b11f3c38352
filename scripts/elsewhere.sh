#!/usr/bin/env bash
# Checks that equal seeds give equal bytes on every machine: compares the simulator's golden files, made on x86-64, on emulated
# processors of other kinds. AArch64 has other vector instructions; s390x has the other byte order.
#
#   scripts/elsewhere.sh
#
# One to three minutes of building for each, and seconds of running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for processor in aarch64 s390x; do
  target=$processor-unknown-linux-gnu
  # Without rustup, the compiler at hand has to have the target's library.
  if command -v rustup >/dev/null; then rustup target add "$target"; fi
  upper=$(tr 'a-z-' 'A-Z_' <<<"$target")
  export "CARGO_TARGET_${upper}_LINKER=$processor-linux-gnu-gcc"
  export "CARGO_TARGET_${upper}_RUNNER=qemu-$processor -L /usr/$processor-linux-gnu"
  printf 'on %s\n' "$processor"
  cargo test --locked -p sherwood-sim --target "$target" --test golden
done
