#!/usr/bin/env bash
# Drives a cluster of three real nodes, each on a small file system of its own, to full disks and
# back, under `bench --acked`: the leader full, one node restarted without a free byte, a majority
# full, all full and the leader killed, and space again. At the end every acknowledged write is
# demanded on every endpoint, and the members must agree.
#
#   net/scripts/disk_full.sh [--fs tmpfs|ext4] [--bin target/release/holdfast] [--dir D]
#                            [--http-base 7660] [--peer-base 7760] [--mib 128] [--hold 15]
#
# `ext4` puts each node on a loop-mounted image file. Both forms mount, so they need root; without
# it the script says so and ends with 0, having shown nothing, unless FULL_REQUIRED=1 is set.
# --hold is how long, in seconds, the first node stays full. Exit status: 0 good, 1 something is
# wrong, 2 usage, 3 otherwise.
set -u -o pipefail

fs=tmpfs bin=target/release/holdfast dir= http_base=7660 peer_base=7760 mib=128 hold=15
while [ $# -gt 0 ]; do
  case "$1" in
    --fs) fs=$2 ;; --bin) bin=$2 ;; --dir) dir=$2 ;; --http-base) http_base=$2 ;;
    --peer-base) peer_base=$2 ;; --mib) mib=$2 ;; --hold) hold=$2 ;;
    *) echo "disk_full: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$bin" ] || { echo "disk_full: no executable at $bin; build it or pass --bin" >&2; exit 2; }
made=
[ -n "$dir" ] || { dir=$(mktemp -d); made=$dir; }
mkdir -p "$dir"
declare -A pid
urls=() endpoints=() mounted=() bench=
for i in 0 1 2; do
  urls+=("http://127.0.0.1:$((http_base + i))")
  endpoints+=(--endpoint "${urls[$i]}")
done

finish() {
  local status=$?
  for process in $bench "${pid[@]}"; do kill "$process" 2>/dev/null; done
  wait 2>/dev/null
  for at in "${mounted[@]}"; do umount "$at"; done
  if [ -n "$made" ] && [ $status -eq 0 ]; then rm -rf "$made"; elif [ $status -ne 0 ]; then echo "disk_full: logs are in $dir" >&2; fi
  exit $status
}
trap finish EXIT
trap 'exit 3' INT TERM
fail() { echo "disk_full: $*" >&2; "$bin" status "${endpoints[@]}" >&2; exit 1; }
say() { printf '%5d s  %s\n' $SECONDS "$*"; }

mount_one() { # mount_one NAME
  mkdir -p "$dir/$1"
  case "$fs" in
    tmpfs) mount -t tmpfs -o "size=${mib}m" "holdfast-$1" "$dir/$1" ;;
    ext4)
      truncate -s "${mib}M" "$dir/$1.img" && mkfs.ext4 -q -m 0 "$dir/$1.img" &&
        mount -o loop "$dir/$1.img" "$dir/$1"
      ;;
    *) echo "disk_full: --fs is tmpfs or ext4" >&2; exit 2 ;;
  esac
}

launch() { # launch NAME
  "$bin" serve --config "$dir/$1.toml" >>"$dir/$1.log" 2>&1 &
  pid[$1]=$!
}
url_of() { echo "${urls[$((${1#n} - 1))]}"; }
fill() { # fill NAME: until not a byte is left
  cat /dev/zero >>"$dir/$1/filler" 2>/dev/null
  say "$1: $(df --output=avail "$dir/$1" | tail -1 | tr -d ' ') KiB left"
}
free() { rm -f "$dir/$1/filler"; }
metric() { curl -s "$(url_of "$1")/metrics" | sed -n "s/^$2 //p"; }
full() { [ "$(metric "$1" holdfast_disk_full)" = 1 ]; }
leader() { "$bin" status "${endpoints[@]}" | sed -n 's/^leader \(n[0-9]\),.*/\1/p'; }
acked() { wc -l <"$dir/acked"; }
# until SECONDS WHAT COMMAND...: tries until the command succeeds
until_true() {
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $until ] || fail "not within the time: $what"
    sleep 0.1
  done
}
alarmed() { full "$1" && "$bin" status "${endpoints[@]}" | grep -q "^$1 .* FULL"; }
leads_other_than() { local now; now=$(leader); [ -n "$now" ] && [ "$now" != "$1" ]; }
more_acked() { [ "$(acked)" -gt "$1" ]; }
alive() { kill -0 "${pid[$1]}" 2>/dev/null; }
everybody_runs() { for n in n1 n2 n3; do alive $n || fail "$n has ended: $(tail -1 "$dir/$n.log")"; done; }
reads() { # reads NAME QUERY: a read of what was put at first
  [ "$(curl -s "$(url_of "$1")/v1/kv/kept$2")" = safe ]
}
# A store that found no space serves nothing until it does; the log and its votes go on.
closed() { curl -s "$(url_of "$1")/readyz" | grep -q 'no space left for the store'; }
put() { # put NAME KEY: the status of a write, its body in $dir/answer
  curl -s -o "$dir/answer" -w '%{http_code}' -X PUT --data-binary x "$(url_of "$1")/v1/kv/$2?timeout_ms=3000"
}
refused() { # refused NAME: a write is refused by name
  [ "$(put "$1" refused)" = 507 ] && grep -q '"code":"disk_full"' "$dir/answer"
}
deleted() { # deleted NAME KEY
  [ "$(curl -s -o "$dir/answer" -w '%{http_code}' -X DELETE "$(url_of "$1")/v1/kv/$2?timeout_ms=3000")" = 200 ]
}

members=
for i in 1 2 3; do
  members+="{ name = \"n$i\", peer = \"127.0.0.1:$((peer_base + i - 1))\" }, "
done
for i in 1 2 3; do
  if ! mount_one "n$i" 2>"$dir/mount.err"; then
    echo "disk_full: no file system of its own for n$i ($(tail -1 "$dir/mount.err")): this needs root; nothing was shown" >&2
    [ "${FULL_REQUIRED:-0}" = 0 ] && exit 0 || exit 3
  fi
  mounted+=("$dir/n$i")
  cat >"$dir/n$i.toml" <<EOF
name = "n$i"
data_dir = "$dir/n$i/data"
http_addr = "127.0.0.1:$((http_base + i - 1))"
cluster_state = "new"
segment_bytes = 524288
snapshot_entries = 2000
initial_members = [ $members ]
EOF
  launch "n$i"
done
writes() { [ "$(put n1 kept)" = 200 ]; }
until_true 60 'the cluster forms' writes
"$bin" kv put kept safe "${endpoints[@]}" >/dev/null || fail 'no first write'
for i in $(seq 1 9); do "$bin" kv put "spare-$i" x "${endpoints[@]}" >/dev/null || fail 'no first write'; done
say "three nodes on $fs of $mib MiB each; $(leader) leads"
"$bin" bench "${endpoints[@]}" --clients 4 --seconds 86000 --timeout 5 \
  --acked "$dir/acked" --json >"$dir/bench.json" 2>"$dir/bench.err" &
bench=$!
until_true 20 'writes are acknowledged' test -s "$dir/acked"
sleep 2

first=$(leader)
fill "$first"
until_true 60 "$first raises the alarm" alarmed "$first"
until_true 20 "somebody else leads" leads_other_than "$first"
before=$(acked)
until_true 20 'writes go on' more_acked "$((before + 200))"
say "$first was the leader and is full: $(leader) leads, writes go on; $first says: $(curl -s "$(url_of "$first")/readyz")"
for _ in $(seq "$hold"); do
  sleep 1
  cat /dev/zero >>"$dir/$first/filler" 2>/dev/null
  everybody_runs
  reads "$first" '' || closed "$first" || fail "$first answers no local read"
done
say "$first has been full for $hold s and runs; its local reads: $(curl -s "$(url_of "$first")/v1/kv/kept")"

kill -9 "${pid[$first]}"
wait "${pid[$first]}" 2>/dev/null
fill "$first"
launch "$first"
answers() { [ "$(curl -s -o /dev/null -w '%{http_code}' "$(url_of "$1")/livez")" = 200 ] && [ -n "$(metric "$1" holdfast_term)" ]; }
until_true 30 "$first starts on its full disk" answers "$first"
until_true 30 "$first raises the alarm again" alarmed "$first"
say "$first was killed and started without a free byte: it runs, and says that it is full"

# It has fallen too far behind to confirm what it acknowledged before its restart, and the snapshot
# that it needs finds no space: it serves no local reads until it has some (R23).
others=$(echo n1 n2 n3 | tr ' ' '\n' | grep -v "$first")
second=$(leader)
fill "$second"
for n in n1 n2 n3; do until_true 30 "a write through $n is refused" refused $n; done
say "a majority is full: 507 through every node: $(cat "$dir/answer")"
told=$("$bin" kv put refused x "${endpoints[@]}" 2>&1 >/dev/null) && fail 'the command took the write'
say "the command says: $told"
for n in $others; do until_true 20 'a linearizable read is answered' reads "$n" '?level=linearizable'; done
until_true 20 'a delete is taken' deleted "$second" spare-1
say 'linearizable reads are answered, and a delete is taken'

# Who has been full for long lags behind and cannot help to commit. So all catch up before the next
# step, and then nobody has a free byte.
ready() { curl -s "$(url_of "$1")/readyz" | grep -qx ready; }
for n in n1 n2 n3; do free $n; done
for n in n1 n2 n3; do until_true 60 "$n catches up" ready $n; done
say 'there is space again: all catch up by themselves'
for n in n1 n2 n3; do fill $n; done
for n in n1 n2 n3; do until_true 60 "a write through $n is refused" refused $n; done
for n in n1 n2 n3; do reads $n '' || fail "$n answers no local read"; done
# Who was full first lags behind by what the others still took: only the leader surely has it all.
read_of_leader() { reads "$(leader)" '?level=linearizable'; }
until_true 20 'a linearizable read is answered' read_of_leader
# A delete is an entry as well: once the last segments hold no more it is refused, and by name. A leader
# whose own compaction has just made room cannot see that its followers have none left even for that
# (they say that they are full, not how full): then it is in the log, nobody confirms it, and the
# answer says that it may still take effect.
freed="is taken"
deleted "$second" spare-2 || { grep -q '"code":"disk_full"' "$dir/answer" && freed="is refused by name"; } ||
  { grep -q '"code":"unavailable","may_commit":true' "$dir/answer" && freed="may take effect later"; } ||
  fail "a delete is answered with $(cat "$dir/answer")"
third=$(leader)
say "all are full: reads are answered, writes are refused, a delete $freed; $third leads and is killed now"
kill -9 "${pid[$third]}"
wait "${pid[$third]}" 2>/dev/null
fill "$third"
until_true 30 'the others elect one' leads_other_than "$third"
say "$(leader) was elected by full disks"
launch "$third"
until_true 30 "$third starts on its full disk" answers "$third"
say "$third is back"
everybody_runs

before=$(acked)
for n in n1 n2 n3; do free $n; done
until_true 60 'writes go on' more_acked "$((before + 200))"
calm() { for n in n1 n2 n3; do [ "$(metric $n holdfast_disk_full)" = 0 ] || return 1; done; }
until_true 60 'the alarms end' calm
ok() { [ "$("$bin" status "${endpoints[@]}" | grep -c '^n[123] .* ok ')" = 3 ]; }
until_true 60 'all are well' ok
everybody_runs
say 'there is space again: writes go on, the alarms have ended'

kill -TERM $bench; wait $bench; bench=
say "bench: $(cat "$dir/bench.json")"
"$bin" bench "${endpoints[@]}" --check "$dir/acked" || fail 'acknowledged writes are missing'
agree() {
  [ "$("$bin" status --json "${endpoints[@]}" | tr ',{' '\n\n' |
    sed -n 's/^"\(applied\|digest\)":\(.*\)/\1 \2/p' | sort | uniq -c | awk '$1 == 3' | wc -l)" = 2 ]
}
until_true 30 'the members agree' agree
"$bin" status "${endpoints[@]}"
say "$(acked) acknowledged writes, nothing lost"
