#!/bin/bash
# enter.sh FOLDER SOURCE PACKAGES PYTHON COMMAND...: run a command as root of what looks like a
# new machine: an overlay of this one, in which nothing that is written stays, with a network,
# processes and folders /tmp and /run of its own. The folders of this machine are never written.
#
#   FOLDER    an empty one
#   SOURCE    of the project; it is /src, an overlay too
#   PACKAGES  a folder of Python packages; a new venv in /opt/xmpp-qos or ~/xmpp-qos finds them
#   PYTHON    in the folder of the python3 that is found there
set -euo pipefail
folder=$1 source=$2 packages=$3 python=$4
shift 4

mount --make-rprivate /
mount -t tmpfs tmpfs "$folder"
root=$folder/root
mkdir "$folder"/{upper,work,root,source-upper,source-work}
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
mkdir "$root/src" "$root/packages"
layers="lowerdir=$source,upperdir=$folder/source-upper,workdir=$folder/source-work"
mount -t overlay overlay -o "$layers" "$root/src"
mount --bind "$packages" "$root/packages"
mount -o remount,ro,bind "$root/packages"
mount -t proc proc "$root/proc"
for each in tmp run dev; do mount -t tmpfs -o mode=755 tmpfs "$root/$each"; done
chmod 1777 "$root/tmp"
for each in null zero full random urandom tty; do
  touch "$root/dev/$each"
  mount --bind "/dev/$each" "$root/dev/$each"
done
ln -s /proc/self/fd "$root/dev/fd"
mkdir -m 1777 "$root/dev/shm"
ip link set lo up

# What the network would bring is here already: the packages of Debian, and of Python.
echo 'APT::Get::Upgrade "false";' >"$root/etc/apt/apt.conf.d/99-no-network"
cat >"$root/etc/pip.conf" <<'EOF'
[global]
no-index = true
no-build-isolation = false
root-user-action = ignore
EOF
# Services run as other users, who may not come by here (/root, say).
parent=$(dirname "$python")
until [ "$parent" = / ]; do
  chmod o+x "$root$parent"
  parent=$(dirname "$parent")
done
version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
for venv in "$root"/{opt,root}/xmpp-qos; do
  mkdir -p "$venv/lib/$version/site-packages"
  echo /packages >"$venv/lib/$version/site-packages/packages.pth"
done

for each in systemctl journalctl; do
  cp "$source/tests/docs/systemctl.py" "$root/usr/local/bin/$each"
done

exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 TERM=dumb \
  PATH="/usr/local/sbin:/usr/local/bin:$(dirname "$python"):/usr/sbin:/usr/bin:/sbin:/bin" \
  sh -c 'cd /src && exec "$@"' - "$@"
