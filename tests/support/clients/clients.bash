# Sourced by scripts in which programs of PyPI read what lockstep writes:
#
#   clients_or_skip LAW MODULE...   ends the script where `python` lacks one of the modules:
#                                   "SKIP LAW: ..."
#
# `python` is what CLIENTS_PYTHON names, or what `make test-clients` installed, or /usr/bin/python3.
installed=$(dirname "$LOCKSTEP")/clients/bin
python=${CLIENTS_PYTHON:-$([[ -e $installed/python3 ]] && echo "$installed/python3" ||
  echo /usr/bin/python3)}
PATH+=:$installed  # promtool, where Debian's is not installed

clients_or_skip() {
  "$python" -c "import $(IFS=,; echo "${*:2}")" 2>/dev/null && return
  echo "SKIP $1: $python lacks ${*:2} (make test-clients)"
  exit 0
}
