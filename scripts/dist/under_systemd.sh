#!/usr/bin/env bash
# Installs a Debian package under a systemd of its own, starts, upgrades, removes and purges it.
#
#   scripts/dist/under_systemd.sh sherwood_….deb
#
# systemd runs in namespaces, on a copy of the machine's files that exists in memory alone
# (overlayfs), without a network; the machine stays as it is. Needs root's rights, unshare, and a
# mounted cgroup2. Exit status: 0 all right, 1 not, 3 if the rights are missing.
set -euo pipefail

self=$(realpath "${BASH_SOURCE[0]}")

# Creates the namespaces, with a cgroup in which systemd may create those of its units.
outside() {
  local package cgroup status=0
  package=$(realpath "$1")
  cgroup=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/self/mounts)
  [ -n "$cgroup" ] || { echo "no cgroup2 is mounted, which systemd needs" >&2 && return 3; }
  cgroup+=$(sed -n 's/^0:://p' /proc/self/cgroup)/sherwood-package.$$
  unshare --mount --pid --fork --net --ipc --uts true 2>/dev/null && mkdir "$cgroup" ||
    { echo "namespaces and cgroups need more rights; run it as root" >&2 && return 3; }
  shared=$(mktemp -d)
  cp "$package" "$shared/sherwood.deb"
  cp "$self" "$shared/check"
  (
    echo "$BASHPID" >"$cgroup/cgroup.procs"
    exec timeout -k 5 300 unshare --mount --pid --fork --kill-child --net --ipc --uts --cgroup \
      --propagation private "$self" boot "$shared" </dev/null
  ) || status=$?
  find "$cgroup" -depth -type d -exec rmdir {} \;
  cat "$shared/log" || true
  [ -e "$shared/passed" ] || { echo "the package failed; systemd ended with status $status" >&2 && status=1; }
  rm -r "$shared"
  [ "$status" = 0 ]
}

# Becomes the first process of a machine whose files are a copy of this one's.
boot() {
  local root=/mnt/root
  mount -t tmpfs -o size=1g tmpfs /mnt
  mkdir /mnt/{root,upper,work}
  mount -t overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work overlay $root
  mount -t proc proc $root/proc
  mount -t sysfs sysfs $root/sys
  mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
  mount -t tmpfs -o mode=755 tmpfs $root/dev
  mknod -m 666 $root/dev/null c 1 3
  mknod -m 666 $root/dev/zero c 1 5
  mknod -m 666 $root/dev/full c 1 7
  mknod -m 666 $root/dev/random c 1 8
  mknod -m 666 $root/dev/urandom c 1 9
  mknod -m 666 $root/dev/tty c 5 0
  mkdir $root/dev/{pts,shm,mqueue,hugepages}
  mount -t devpts -o newinstance,ptmxmode=0666 devpts $root/dev/pts
  ln -s pts/ptmx $root/dev/ptmx
  ln -s /proc/self/fd $root/dev/fd
  mount -t tmpfs -o mode=755 tmpfs $root/run
  mkdir $root/run/check
  mount --bind "$1" $root/run/check
  mount -t tmpfs tmpfs $root/tmp
  : >$root/etc/machine-id
  # In containers it forbids that services are started.
  rm -f $root/usr/sbin/policy-rc.d
  cat >$root/etc/systemd/system/check.service <<END
[Unit]
Requires=basic.target
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /run/check/check inside
ExecStopPost=/bin/systemctl --no-block exit
END
  mkdir $root/before
  cd $root
  pivot_root . before
  umount -l /before
  exec env -i container=sherwood PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=check.service
}

# Sends memcached commands to the service and prints the answers.
ask() {
  exec 5<>/dev/tcp/127.0.0.1/11211
  printf '%b\r\nquit\r\n' "$1" >&5
  timeout 30 cat <&5 | tr -d '\r'
}

pid() {
  systemctl show --value --property=MainPID sherwood.service
}

# Checks the package, as a unit of that systemd.
inside() {
  local package=/run/check/sherwood.deb config=/etc/sherwood/sherwood.toml before
  exec >/run/check/log 2>&1
  set -x
  ip link set lo up

  dpkg --install $package
  systemctl is-active sherwood.socket
  systemctl is-active sherwood.service
  systemctl is-enabled sherwood.socket sherwood.service
  sherwood ready
  [ "$(ask 'set greeting 0 0 5\r\nhello')" = STORED ]

  # An upgrade restarts it, with its contents.
  before=$(pid)
  dpkg --install $package
  [ "$(pid)" != "$before" ]
  [ "$(ask 'get greeting')" = $'VALUE greeting 0 5\nhello\nEND' ]

  # One whose configuration is not valid leaves the old process alone.
  before=$(pid)
  cp $config /tmp/sherwood.toml
  echo 'unknown = 1' >$config
  dpkg --force-confold --install $package
  [ "$(pid)" = "$before" ]
  cp /tmp/sherwood.toml $config
  systemctl reload sherwood.service

  dpkg --remove sherwood
  if systemctl is-active sherwood.socket || systemctl is-active sherwood.service; then return 1; fi
  [ -e $config ]
  dpkg --purge sherwood
  [ -z "$(find /etc/sherwood /var/lib/sherwood /var/lib/private/sherwood -maxdepth 0 2>/dev/null)" ]
  [ -z "$(find /etc/systemd /var/lib/systemd -name 'sherwood*')" ]
  touch /run/check/passed
}

case $1 in
  boot | inside) "$@" ;;
  *) outside "$1" ;;
esac
