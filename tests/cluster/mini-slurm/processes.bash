# mini-slurm: keeps track of the processes that it has started; sourced by mini-slurm.

# A process is identified by its id and start time. So a signal never reaches another process that
# has been given the same id in the meantime.
start_time() {
  local l
  { read -r l < "/proc/$1/stat"; } 2>/dev/null || return 1
  l=${l##*) }; set -- $l
  [ "$1" != Z ] || return 1
  printf '%s' "${20}"
}
record() { local t; t=$(start_time "$2") || return 1; printf '%s %s\n' "$2" "$t" > "$S/pid/$1"; }
pid_of() {                              # prints the id if the process is alive
  local p t
  { read -r p t < "$S/pid/$1"; } 2>/dev/null || return 1
  [ "$(start_time "$p" || true)" = "$t" ] || return 1
  printf '%s' "$p"
}
nap() {                                 # as sleep, without a process: nothing comes from this pipe
  [[ -p $S.nap ]] || mkfifo "$S.nap" 2>/dev/null || true
  read -rt "$1" _ <>"$S.nap" || (($? > 128)) || sleep "$1"
} 2>/dev/null
stop() {                                # stop NAME SIGNAL [SECONDS before KILL]
  local p i
  p=$(pid_of "$1") || { rm -f "$S/pid/$1"; return 0; }
  kill -s "$2" "$p" 2>/dev/null || true
  for ((i = 0; i < ${3:-5} * 50; i++)); do
    pid_of "$1" >/dev/null || { rm -f "$S/pid/$1"; return 0; }
    nap 0.02
  done
  p=$(pid_of "$1") && kill -s KILL "$p" 2>/dev/null
  for ((i = 0; i < 250; i++)); do
    pid_of "$1" >/dev/null || { rm -f "$S/pid/$1"; return 0; }
    nap 0.02
  done
  die "process $p ($1) does not end"
}
# until_file FILE [PID]: waits for the file, for at most 10 s, and no longer than the process lives.
until_file() {
  local i
  for ((i = 0; i < 500; i++)); do
    [ -s "$1" ] && return 0
    [ -z "${2:-}" ] || kill -0 "$2" 2>/dev/null || return 1
    nap 0.02
  done
  return 1
}
