#!/bin/sh
# The part of `make install` for people and module systems:
#
#   jobs/install/install.sh PROGRAM MAN_PAGE COMPLETION MODULE MODULE.lua
set -eu
from=$(dirname "$0")
put() { install -D -m 644 "$1" "$2"; }

rm -f "$2"
if "$1" --version >/dev/null 2>&1; then
  page=$("$from/man_page.sh" "$1")
  printf '%s\n' "$page" | put /dev/stdin "$2"
else  # built for other processors, or sudo has dropped the path to its libraries
  echo "  note    $1 does not start here: there will be no manual page"
fi
put "$from/completion.bash" "$3"
put "$from/module.tcl" "$4"
put "$from/module.lua" "$5"
