#!/bin/bash
# Steps continue while a checkpoint is written: also on a file system that does not answer. A run
# that is killed in the middle of a write resumes from the newest checkpoint that is whole.
# seconds: 900
# ci
# waits for a frozen file system
source "$(dirname "$0")/../../support/e2e.bash"
pack_small
disks='frozen frozen_bits frozen_stop frozen_end'
can_freeze=1
for one in $disks; do
  mkdir $one
  truncate -s 100M $one.ext4
  mkfs.ext4 -q $one.ext4 2>/dev/null && mount -o loop $one.ext4 $one 2>/dev/null || can_freeze=
done
thaw_all() {
  local one
  for one in $disks; do
    fsfreeze -u "$WORK/$one" 2>/dev/null
    umount -l "$WORK/$one" 2>/dev/null
  done
}
trap thaw_all EXIT
train=("$LOCKSTEP" train --data.train small/train --batch 25 --threads 1 --optim.lr 0.01)
newest() { ls "$1"/checkpoints/step-*.h5 2>/dev/null | tail -n 1; }
has_checkpoint() { [[ $(newest "$1") ]]; }

# begin RANKS RUN OPTION...: starts a training; its log is RUN.log, next to the frozen folder.
begin() {
  log=${2//\//-}
  : >"$log.log"
  mpirun --mca odls_base_sigkill_timeout 60 --oversubscribe --bind-to none -np "$1" "${train[@]}" \
    --out "$2" "${@:3}" >"$log.log" 2>&1 &
  mpirun=$!
}
# logged PATTERN: the log of the newest training has it.
logged() { grep -Eaq -- "$1" "$log.log"; }

# ---- killed in the middle of a write ------------------------------------------------------------
# half PID RUN: stops the process; true if a checkpoint of it is then half written. Else it
# continues.
half() {
  compgen -G "$2/checkpoints/*.tmp*" >/dev/null || return 1
  kill -STOP "$1" || return 1
  until_it 50 grep -q '^State:.*[Tt] (' "/proc/$1/status"
  compgen -G "$2/checkpoints/*.tmp*" >/dev/null && return
  kill -CONT "$1"
  return 1
}
# caught PID RUN: tries that for a minute at most.
caught() {
  local end=$((SECONDS + 60))
  while ((SECONDS < end)) && kill -0 "$1" 2>/dev/null; do
    half "$1" "$2" && return
    nap 0.01
  done
  return 1
}

killed() {
  local kills=3 left hits=0 from expected wrong=
  nightly && kills=20
  # Large enough that a write takes some time.
  local any=(--model resnet18 --epochs $((6 * kills)) --checkpoint.every-epochs 0)
  run "${train[@]}" "${any[@]}" --out whole
  ((status == 0)) || verdict 1 'an uninterrupted run ends'
  for ((left = kills; left > 0; left--)); do
    expected=$(newest killed)
    : >"start$left.log"  # so that no step of another start is seen there
    "${train[@]}" "${any[@]}" --checkpoint.every-steps 2 --out killed \
      --resume auto >>"start$left.log" 2>&1 &
    local pid=$!
    first_step "start$left.log"
    from=$(grep -ao 'resuming from [^:]*' "start$left.log")
    [[ ${from#resuming from } == "$expected" ]] ||
      wrong+="it resumed ${from:-from the start}, not from $expected"$'\n'
    further() { [[ $(newest killed) != "$expected" ]]; }
    until_it 600 further  # one of this start is whole
    sleep "0.$((RANDOM % 10))"
    caught $pid killed && ((++hits))
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
  done
  expected=$(newest killed)
  run "${train[@]}" "${any[@]}" --out killed --resume auto
  said+=$'\n'"$hits of $kills kills hit a write"$'\n'$wrong
  ((status == 0 && hits == kills)) && [[ ! $wrong ]] && says "resuming from $expected" &&
    ! says torn &&
    cmp <(tensors "$(newest killed)") <(tensors "$(newest whole)") &&
    cmp <(without_times killed) <(without_times whole)
  verdict $? 'a run that is killed while checkpoints are written resumes from the newest one that is whole, with the same bits'
}

# ---- frozen -------------------------------------------------------------------------------------
# steps_in RUN FROM UNTIL: true if each ten seconds between these (since 1970) have ends of steps,
# and no step is missing.
steps_in() {
  python3 - "$@" <<'PY'
import json, sys
run, begin, end = sys.argv[1], float(sys.argv[2]) * 1e3, float(sys.argv[3]) * 1e3
steps = [one for one in map(json.loads, open(run + "/metrics.jsonl")) if one["kind"] == "step"]
assert [one["step"] for one in steps] == list(range(1, len(steps) + 1)), "steps are missing"
times = [one["time_ms"] for one in steps]
assert times == sorted(times), "times go back"
frozen = [one for one in times if begin <= one <= end]
longest = max(after - before for before, after in zip(frozen, frozen[1:]))
print(len(frozen), "steps while frozen; the longest took", longest, "ms")
at = begin
while at + 1e4 <= end:
    assert any(at <= one < at + 1e4 for one in times), f"no step {at - begin:.0f} ms later"
    at += 1e4
PY
}

# freeze RUN SECONDS OPTION...: a training of two ranks whose file system is frozen for that long
# after its first checkpoint, and which is stopped after a further one. Sets `before`, `after` (when
# that was), `named` (0: a warning named the file system), `alive` (0: it trained on, with nothing
# new on the disk) and `told` (0: it said when the write had ended).
freeze() {
  local durable end seconds=$2
  begin 2 "$1" --epochs 100000 --checkpoint.every-epochs 0 --comm.deadline-s 10 "${@:3}"
  until_it 900 has_checkpoint "$1"
  before=$EPOCHREALTIME
  fsfreeze -f "${1%/*}"
  end=$((SECONDS + seconds))
  if ((seconds > 60)); then
    until_it 800 logged "warning: the checkpoint of step [0-9]+ has been written for [6-9][0-9] s: does the file system of $1/checkpoints answer\\?"
    named=$?
  fi
  durable=$(newest "$1")
  while ((SECONDS < end)); do nap 0.5; done
  after=$EPOCHREALTIME
  kill -0 $mpirun && [[ $(newest "$1") == "$durable" ]]
  alive=$?
  fsfreeze -u "${1%/*}"
  if ((seconds > 60)); then
    until_it 300 logged 'the checkpoint of step [0-9]+ is on the disk, after [0-9]+ s'
    told=$?
  fi
  newer() { [[ $(newest "$1") > $2 ]]; }
  until_it 300 newer "$1" "$durable"
  kill -USR1 $mpirun
  finish "$log"
}

frozen() {
  local law='a file system that is frozen for longer than comm.deadline-s costs no step' seconds=75
  local before after named alive told
  # Nothing is computed here but every night: other tests need the cores.
  local pace=(--backend clock --clock.step-ms 20)
  ! nightly || { pace=(); seconds=300; }
  freeze frozen/run $seconds "${pace[@]}" --checkpoint.every-steps 20
  said+=$'\n'$(steps_in frozen/run "$before" "$after" 2>&1)
  ((alive == 0 && status == 3)) && steps_in frozen/run "$before" "$after" >/dev/null
  verdict $? "$law"
  ((named == 0 && told == 0)) &&
    (($(grep -ac 'does the file system of frozen' frozen-run.log) == 1)) &&
    says 'a checkpoint is due while the one before it is still being written'
  verdict $? 'a write that takes a minute is named once, and again when it is on the disk'
}

frozen_bits() {
  local last before after named alive told
  freeze frozen_bits/run 12 --checkpoint.every-steps 20
  last=$(sed -n 's/.*stopped after step \([0-9]*\) .*/\1/p' frozen_bits-run.log)
  run ranks 2 "${train[@]}" --out same --epochs 100000 --checkpoint.every-epochs 0 \
    --stop-after "$last"
  ((alive == 0 && status == 3)) &&
    cmp <(tensors "$(newest frozen_bits/run)") <(tensors "$(newest same)") &&
    cmp <(without_times frozen_bits/run) <(without_times same)
  verdict $? 'it ends with the bits of a run whose file system answered'
}

frozen_stop() {
  begin 1 frozen_stop/run --epochs 100000 --checkpoint.every-epochs 0 --checkpoint.every-steps 20
  until_it 900 has_checkpoint frozen_stop/run
  fsfreeze -f frozen_stop
  kill -USR1 $mpirun
  until_it 300 logged 'waiting until the checkpoint of step [0-9]+ is on the disk'
  local told=$?
  logged 'stopped after' && told=1
  fsfreeze -u frozen_stop
  finish frozen_stop-run
  ((told == 0 && status == 3)) &&
    says "stopped after step ([0-9]+) .*from $(newest frozen_stop/run)" &&
    [[ $(tail -n 1 frozen_stop/run/metrics.jsonl) == *'"kind":"end"'* ]] &&
    run "$LOCKSTEP" info "$(newest frozen_stop/run)" && ((status == 0))
  verdict $? 'a run that is stopped ends only when its checkpoint is on the disk, and says what it waits for'
}

frozen_end() {
  begin 2 frozen_end/run --epochs 100000 --checkpoint.every-epochs 0 --checkpoint.every-steps 20 \
    --comm.deadline-s 6
  until_it 900 has_checkpoint frozen_end/run
  fsfreeze -f frozen_end
  kill -USR1 $mpirun
  until_it 600 logged 'rank 0 on .*checkpoint for [0-9]+ s\): does the file system of the run answer\?'
  local named=$?
  fsfreeze -u frozen_end
  finish frozen_end-run
  ((named == 0 && status == 4))
  verdict $? 'where ranks must wait for a file system that does not answer, it is named after comm.deadline-s, with status 4'
}

if [[ $can_freeze ]]; then
  at_once 5 killed frozen frozen_bits frozen_stop frozen_end
else
  at_once 1 killed
  echo 'SKIP a frozen file system costs no step: no loop device here'
fi
