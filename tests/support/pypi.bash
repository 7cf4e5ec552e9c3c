# Sourced by scripts that let programs of PyPI read what lockstep writes:
#
#   pypi_or_skip LAW MODULE...   `python` is an interpreter that has these modules; without one the
#                                script ends: "SKIP LAW: ..."
#
# It is $PYPI_PYTHON, else that of the virtual environment pypi/ in the build's folder
# (tests/README.md says how to make it), else the system's.
pypi_or_skip() {
  local law=$1 one why=''
  shift
  for python in "${PYPI_PYTHON:-}" "$(dirname "$LOCKSTEP")/pypi/bin/python3" /usr/bin/python3; do
    [[ -x $python ]] || continue
    one=$("$python" -c "import $(IFS=,; echo "$*")" 2>&1) && return
    why=${one##*$'\n'}
  done
  echo "SKIP $law: no Python has $* of PyPI (${why:-there is no Python})"
  exit 0
}
