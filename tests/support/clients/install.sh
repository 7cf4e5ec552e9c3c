#!/bin/bash
# install.sh FOLDER: makes a Python environment there with what requirements.txt names, and takes
# promtool from Debian's package of Prometheus, without its server. Several GB, several minutes.
set -euo pipefail
wanted=$(realpath "$(dirname "$0")/requirements.txt")
rm -rf "$1"
python3 -m venv "$1"
"$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$wanted"
mkdir "$1/debian" && cd "$1/debian"
if command -v promtool >/dev/null; then
  echo 'promtool is here already'
elif apt-get -qq -o APT::Sandbox::User=root download prometheus 2>&1 &&
  dpkg-deb --extract prometheus_*.deb .; then
  mv usr/bin/promtool ../bin/
else
  echo 'promtool cannot be had here: tests that need it will be skipped'
fi
cd .. && rm -r debian && touch made
