#!/usr/bin/env bash
# Builds Debian packages of a sherwood binary: sherwood_….deb, and sherwood-dbgsym_….deb with its
# debug information. Needs dpkg-deb, binutils and python3; the binary has to run on this machine,
# since it prints its own completions and man pages.
#
#   scripts/dist/deb.sh target/release/sherwood target/dist
#   scripts/dist/deb.sh target/debug/sherwood DIR -Znone        with flags for dpkg-deb
#
# With SIZE_MAX in the environment, a program of more bytes is refused.
set -euo pipefail
umask 022

binary=$(realpath "$1")
out=$(realpath -m "$2")
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Time stamps are the last commit's, so that equal sources make equal packages.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}

version=$("$binary" --version | cut -d' ' -f2)-1
architecture=$(dpkg --print-architecture)

# Installs standard input, compressed, as a file.
install_gz() {
  mkdir -p "$(dirname "$1")"
  gzip -9n >"$1"
}

# Prints the packages that contain the binary's shared libraries. The C library's version is that of
# the newest symbol that the binary uses.
depends() {
  local library libc
  libc=$(readelf -VW "$binary" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
  for library in $(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $library in
      libc.so.* | libm.so.* | ld-linux*) echo "libc6 (>= ${libc#GLIBC_})" ;;
      libgcc_s.so.1) echo "libgcc-s1" ;;
      *) echo "$0: no Debian package is known for $library of $binary" >&2 && return 1 ;;
    esac
  done | sort -u | paste -sd, | sed 's/,/, /g'
}

# Fills in a control file, and packs the folder $1 according to it. The rest are flags for dpkg-deb.
pack() {
  local root=$1 control=$2 size
  shift 2
  size=$(du -k --apparent-size -s "$root" | cut -f1)
  mkdir -p "$root/DEBIAN"
  sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@INSTALLED_SIZE@/$size/" \
    -e "s/@DEPENDS@/$depends/" -e "s/@BUILD_ID@/$build_id/" "$control" >"$root/DEBIAN/control"
  (cd "$root" && find . -type f ! -path './DEBIAN/*' ! -path './etc/*' -printf '%P\0' | sort -z |
    xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  dpkg-deb --root-owner-group "$@" --build "$root" "$out"
}

root=$work/sherwood
symbols=$work/sherwood-dbgsym
depends=$(depends)
build_id=$(readelf -n "$binary" | sed -n 's/.*Build ID: //p')

# Function names stay, for backtraces; lines and types go into the other package.
mkdir -p "$root/usr/bin"
objcopy --strip-debug "$binary" "$root/usr/bin/sherwood"
size=$(stat -c %s "$root/usr/bin/sherwood")
[ "$size" -le "${SIZE_MAX:-$size}" ] ||
  { echo "$0: the program has $size bytes without debug information, more than $SIZE_MAX" >&2 && exit 1; }

share=$root/usr/share
mkdir -p "$share"/{bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
"$binary" completions bash >"$share/bash-completion/completions/sherwood"
"$binary" completions zsh >"$share/zsh/vendor-completions/_sherwood"
"$binary" completions fish >"$share/fish/vendor_completions.d/sherwood.fish"
"$binary" man "$share/man/man1"
gzip -9n "$share"/man/man1/*

install -D -m 644 -t "$root/usr/lib/systemd/system" deploy/systemd/sherwood.{service,socket}
install -D -m 644 -t "$root/etc/sherwood" deploy/systemd/sherwood.toml

doc=$share/doc/sherwood
install -D -m 644 -t "$doc" deploy/debian/copyright
install -D -m 644 -t "$doc/examples" sherwood.example.toml deploy/grafana/sherwood.json deploy/prometheus/{prometheus,sherwood.rules}.yml
scripts/dist/licences.py | install_gz "$doc/licences.gz"
install_gz "$doc/changelog.gz" <CHANGELOG.md
install_gz "$doc/changelog.Debian.gz" <<END
sherwood ($version) unstable; urgency=medium

  * See changelog.gz.

 -- Sherwood's maintainers <root@localhost>  $(date -Rud "@$SOURCE_DATE_EPOCH")
END

install -D -m 755 -t "$root/DEBIAN" deploy/debian/{postinst,prerm,postrm}
echo /etc/sherwood/sherwood.toml >"$root/DEBIAN/conffiles"

debug=$symbols/usr/lib/debug/.build-id/${build_id:0:2}/${build_id:2}.debug
mkdir -p "$(dirname "$debug")" "$symbols/usr/share/doc"
objcopy --only-keep-debug --compress-debug-sections "$binary" "$debug"
chmod 644 "$debug"
ln -s sherwood "$symbols/usr/share/doc/sherwood-dbgsym"

mkdir -p "$out"
pack "$root" deploy/debian/control "$@"
pack "$symbols" deploy/debian/control-dbgsym "$@"
