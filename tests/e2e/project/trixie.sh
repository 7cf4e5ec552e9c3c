#!/bin/bash
# Debian 13's compiler and libraries take the sources that use a library. `make test-trixie` builds
# all of them there, and runs the tests.
# ci
# computes
# seconds: 900
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
cd "$repo"

law='the sources that use a library are free of warnings with the libraries of Debian 13'
run tests/debian/debian trixie root
((status != 77)) || { echo "SKIP $law: $(tail -n 1 <<<"$said")"; exit 0; }
libraries='onednn|dnnl|hdf5|hwloc|microhttpd|CLI/|toml|jpeg|png|webp|blosc'
uses="#include (<($libraries)|\"(ports/mpi|data/chunked)/)"
files=$(grep -rlE --include='*.cpp' "$uses" src | tr '\n' ' ')
run tests/debian/debian trixie run make --no-print-directory -k CUDA=0 \
  BUILD=build/trixie/parse parsed FILES="$files"
((status == 0))
verdict $? "$law"

run tests/debian/debian trixie run jobs/setup.sh --versions
says '^libdnnl-dev=3\.' && says '^libhdf5-dev=1\.14' && says '^libopenmpi-dev=5\.' &&
  says '^catch2=3'
verdict $? 'they are those of Debian 13'
