# sh read_only.sh COMMAND…: run a command where no file can be written, as in a container with
# a read-only root and no /tmp. For a namespace of mounts: see unshare(1).
set -e
# The mounts of others may not be changed in it; a new one hides them. A folder that this
# checkout is in has to stay, and only cannot be written.
for folder in /tmp /var/tmp /dev/shm /run; do
  case "$0" in
    "$folder"/*) mount --bind "$folder" "$folder"; mount -o remount,bind,ro "$folder" ;;
    *) test ! -d "$folder" || mount -t tmpfs -o ro none "$folder" ;;
  esac
done
mount -o remount,bind,ro /
cd /
exec "$@"
