# Sourced by scripts that compare lockstep's files with h5py's, in the folder $WORK:
#
#   h5py_or_skip WHAT    ends the script where there is no h5py: "SKIP WHAT: ..."; `python` has it
#   law NAME COMMAND...  the law holds when the command succeeds
python=/usr/bin/python3
cd "$WORK"

h5py_or_skip() {
  "$python" -c 'import h5py' 2>/dev/null && return
  echo "SKIP $1: $python has no h5py"
  exit 0
}

law() {
  if "${@:2}" >law.log 2>&1; then
    echo "PASS $1"
  else
    cat law.log
    echo "FAIL $1"
  fi
}
