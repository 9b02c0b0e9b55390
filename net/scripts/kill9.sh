#!/usr/bin/env bash
# Kills -9 a random node of a running cluster, again and again, under `bench --acked`, starts it
# with the line that `dev` printed, and at the end demands every acknowledged write on every
# endpoint, equal states, and at least one installed snapshot.
#
#   net/scripts/kill9.sh [[--rounds] 30] [--bin target/release/holdfast] [--dir D]
#                        [--http-base 7640] [--peer-base 7740] [--clients 8] [--seed N]
#
# Every third round leaves the node down long enough that its entries are compacted meanwhile, so
# that it has to be caught up by a snapshot. Exit status: 0 good, 1 something is lost, 3 otherwise.
set -u -o pipefail

rounds=30 bin=target/release/holdfast dir= http_base=7640 peer_base=7740 clients=8 seed=$$
while [ $# -gt 0 ]; do
  case "$1" in
    --rounds) rounds=$2 ;; --bin) bin=$2 ;; --dir) dir=$2 ;; --http-base) http_base=$2 ;;
    --peer-base) peer_base=$2 ;; --clients) clients=$2 ;; --seed) seed=$2 ;;
    [0-9]*) rounds=$1; shift; continue ;;
    *) echo "kill9: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$bin" ] || { echo "kill9: no executable at $bin; build it or pass --bin" >&2; exit 2; }
made=
[ -n "$dir" ] || { dir=$(mktemp -d); made=$dir; }
mkdir -p "$dir"
RANDOM=$seed
urls=(); endpoints=()
for i in 0 1 2; do
  urls+=("http://127.0.0.1:$((http_base + i))")
  endpoints+=(--endpoint "${urls[$i]}")
done
declare -A line owned
dev= bench=

finish() {
  local status=$?
  for pid in $bench $dev "${owned[@]}"; do kill "$pid" 2>/dev/null; done
  wait 2>/dev/null
  if [ -n "$made" ] && [ $status -eq 0 ]; then rm -rf "$made"; else echo "kill9: data and logs are in $dir" >&2; fi
  exit $status
}
trap finish EXIT
trap 'exit 3' INT TERM
fail() { echo "kill9: $*" >&2; exit 1; }

# field NAME EXPRESSION: a field of a member in the status, as any endpoint tells it.
status() { "$bin" status --json --timeout 20 "${endpoints[@]}"; }
pid_of() {
  # Each member in the JSON begins at its `"applied"`; its name and pid are in the same object.
  status | tr '{' '\n' | grep "\"name\":\"$1\"" | sed -n 's/.*"pid":\([0-9]*\).*/\1/p'
}
ready() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$1/readyz")" = 200 ]; }
wait_ready() {
  local until=$((SECONDS + 60))
  until ready "$1"; do
    [ $SECONDS -lt $until ] || fail "$1 is not ready within 60 s: $(curl -s "$1/readyz")"
    sleep 0.05
  done
}
# Counters live in the process: they are read before a node is killed, and at the end.
installs=0
count_installs() {
  local n
  n=$(curl -s "$1/metrics" | sed -n 's/^holdfast_events_total{kind="snapshot_installed"} //p')
  installs=$((installs + ${n:-0}))
}

"$bin" dev --dir "$dir/cluster" --http-base "$http_base" --peer-base "$peer_base" \
  --snapshot-entries 100 >"$dir/dev.out" 2>"$dir/dev.err" &
dev=$!
until grep -qx ready "$dir/dev.out"; do
  kill -0 $dev 2>/dev/null || { cat "$dir/dev.err" >&2; exit 3; }
  sleep 0.05
done

"$bin" bench "${endpoints[@]}" --clients "$clients" --seconds 86000 --timeout 5 \
  --acked "$dir/acked" --json >"$dir/bench.json" 2>"$dir/bench.err" &
bench=$!

for round in $(seq 1 "$rounds"); do
  i=$((RANDOM % 3)); name=n$((i + 1)); url=${urls[$i]}
  pid=$(pid_of "$name")
  [ -n "$pid" ] || fail "round $round: no process id for $name"
  count_installs "$url"
  kill -9 "$pid"
  if [ -n "${owned[$name]:-}" ]; then
    wait "${owned[$name]}" 2>/dev/null
  else
    # The first time it was a child of dev, which prints the line that starts it again.
    until line[$name]=$(grep -E "^[^ ]*holdfast serve --config [^ ]*$name[^ ]*$" "$dir/dev.out"); do sleep 0.02; done
  fi
  down=$(((RANDOM % 5) * 100))
  [ $((round % 3)) -ne 0 ] || down=2000
  sleep "$((down / 1000)).$(printf %03d $((down % 1000)))"
  ${line[$name]} >>"$dir/$name.again.log" 2>&1 &
  owned[$name]=$!
  wait_ready "$url"
  echo "round $round: killed $name (process $pid), down for $down ms, ready again"
done

kill -TERM $bench; wait $bench; bench=
[ -s "$dir/bench.json" ] || { cat "$dir/bench.err" >&2; fail "bench left no report"; }
echo "bench: $(cat "$dir/bench.json")"
for url in "${urls[@]}"; do count_installs "$url"; done
"$bin" bench "${endpoints[@]}" --check "$dir/acked" || fail "acknowledged writes are missing"

# Equal applied index and digest on all three, once the last entries have arrived everywhere.
same=
for _ in $(seq 100); do
  same=$(status | tr ',{' '\n\n' | sed -n 's/^"\(applied\|digest\)":\(.*\)/\1 \2/p' | sort | uniq -c | awk '$1 == 3' | wc -l)
  [ "$same" = 2 ] && break
  sleep 0.1
done
"$bin" status "${endpoints[@]}"
[ "$same" = 2 ] || fail "the members do not agree on applied index and digest"
[ "$installs" -gt 0 ] || fail "no snapshot was installed: the rounds were too short"
echo "kill9: $rounds rounds, $(wc -l <"$dir/acked") recorded writes, $installs snapshots installed, nothing lost"
