# Sourced by scripts in which programs of PyPI read what lockstep writes:
#
#   clients_or_skip LAW MODULE...   ends the script where `python` lacks one of the modules:
#                                   "SKIP LAW: ..."
#
# CLIENTS_PYTHON names a Python that has them; without it, /usr/bin/python3.
python=${CLIENTS_PYTHON:-/usr/bin/python3}

clients_or_skip() {
  "$python" -c "import $(IFS=,; echo "${*:2}")" 2>/dev/null && return
  echo "SKIP $1: $python lacks ${*:2}"
  exit 0
}
