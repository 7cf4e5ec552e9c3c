#!/bin/bash
# install.sh FOLDER: makes a Python environment there with what requirements.txt names, and in
# FOLDER/triton, FOLDER/kserve and FOLDER/schemathesis those of clients of `lockstep serve`: what
# they need does not fit into one. Takes promtool from Debian's package of Prometheus, without its
# server. Several GB, several minutes.
set -euo pipefail
here=$(realpath "$(dirname "$0")")
environment() {  # environment FOLDER REQUIREMENTS
  python3 -m venv "$1"
  "$1/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/$2.txt"
}
rm -rf "$1"
environment "$1" requirements
for client in triton kserve schemathesis; do
  environment "$1/$client" $client
done
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
