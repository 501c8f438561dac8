#!/usr/bin/env bash
# An audit on a cluster: a standalone one of two workers, on loopback, for this one job.
#
#   examples/spark_cluster.sh JOURNAL… --out DIR [more options of xmpp-qos audit]
#
# PYTHON is the interpreter of driver and workers; it has the extra `spark`. At a cluster
# of yours only the last command is of interest. What is started here is ended here. The
# exit status is that of the audit: 0 no anomaly, 1 anomalies, 2 it cannot be done.
set -euo pipefail

readonly CORES=1 MEMORY=1g START_S_MAX=120
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$root/.venv/bin/python}

fail() {
  echo "spark_cluster.sh: $*" >&2
  exit 2
}

[ $# -gt 0 ] || fail "which journals? spark_cluster.sh JOURNAL… --out DIR"
command -v "$python" >/dev/null ||
  fail "there is no $python: make demo makes one, or say PYTHON=/path/to/python"
SPARK_HOME=$("$python" -c 'import pyspark; print(pyspark.__path__[0])' 2>/dev/null) ||
  fail "$python has no pyspark: pip install '.[spark]' in the folder of xmpp-qos"
why=$("$python" -c '
from qos.spark.session import NoSpark, check_spark
try:
    check_spark()
except NoSpark as error:
    print(error)') || fail "$python has no xmpp-qos: pip install '.[spark]' in its folder"
[ -z "$why" ] || fail "$why"

export SPARK_HOME PYSPARK_PYTHON=$python SPARK_LOCAL_IP=127.0.0.1
export SPARK_PUBLIC_DNS=127.0.0.1 SPARK_DAEMON_MEMORY=512m
folder=$(mktemp -d "${TMPDIR:-/tmp}/spark-cluster-XXXXXX")
# Nothing that is configured for another cluster.
export SPARK_CONF_DIR=$folder/none
pids=()

end() {
  # Workers first: they end their executors.
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill "${pids[i]}" 2>/dev/null || continue
    wait "${pids[i]}" 2>/dev/null || :
  done
  rm -rf "$folder"
}
trap end EXIT
trap 'exit 130' INT TERM

start() { # NAME CLASS [ARGUMENT…]
  "$SPARK_HOME/bin/spark-class" "org.apache.spark.deploy.$2" --host 127.0.0.1 \
    --webui-port 0 "${@:3}" >"$folder/$1.log" 2>&1 &
  pids+=($!)
}

until_said() { # NAME TEXT TIMES
  local deadline=$((SECONDS + START_S_MAX))
  until [ "$(grep -c "$2" "$folder/$1.log")" -ge "$3" ]; do
    [ $SECONDS -lt $deadline ] || fail "the $1 did not start: $(tail -n 1 "$folder/$1.log")"
    for pid in "${pids[@]}"; do
      kill -0 "$pid" 2>/dev/null || fail "it did not start: $(cat "$folder"/*.log | tail -n 1)"
    done
    sleep 0.2
  done
}

start master master.Master --port 0
until_said master 'Starting Spark master at' 1
master=$(grep -o 'spark://127.0.0.1:[0-9]*' "$folder/master.log" | head -n 1)
for number in 1 2; do
  start "worker$number" worker.Worker --cores $CORES --memory $MEMORY \
    --work-dir "$folder/work$number" "$master"
done
until_said master 'Registering worker' 2
echo "Two workers at $master." >&2

# What the Python processes of the executors import: the packages as a wheel has them.
(cd "$root" && "$python" -m zipfile -c "$folder/xmpp_qos.zip" qos plugins/xep_*)

# In the background, so that a signal need not wait for its end.
"$SPARK_HOME/bin/spark-submit" --master "$master" --executor-memory 512m \
  --conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 \
  --conf spark.ui.enabled=false --conf spark.log.level=ERROR \
  --conf spark.sql.shuffle.partitions=8 \
  --py-files "$folder/xmpp_qos.zip" "$root/examples/spark_main.py" audit "$@" &
pids+=($!)
status=0
wait $! || status=$?
echo "Executors: $(find "$folder" -path '*/work?/app-*/*' -type d -prune | wc -l)" >&2
exit $status
