#!/bin/bash
# tests/check_layers finds each violation: one at a time is planted in a small tree that keeps the
# law.
# waits
source "$(dirname "$0")/../support/e2e.bash"
check_layers=$(realpath "$support/../check_layers")
tree=$WORK/tree

plant() {  # plant FILE LINE...: a lawful tree with one more file
  rm -rf "$tree"
  mkdir -p "$tree"/include/lockstep/{base,nn} "$tree"/src/{base,nn,train} "$tree/src/cluster/nodes" \
    "$tree/$(dirname "$1")"
  printf '#pragma once\n#include <vector>\nnamespace lockstep {\n}\n' \
    >"$tree/include/lockstep/base/error.hpp"
  printf '#pragma once\n#include "lockstep/base/error.hpp"\nnamespace lockstep::nn {\n}\n' \
    >"$tree/include/lockstep/nn/network.hpp"
  printf '#include "lockstep/nn/network.hpp"\n' | tee "$tree/src/nn/network.cpp" \
    >"$tree/src/train/trainer.cpp"
  printf '#pragma once\n' >"$tree/src/cluster/nodes/node_facts.hpp"
  printf '# A page is no source: #if, TODO\n' >"$tree/src/README.md"
  printf '%s\n' "${@:2}" >"$tree/$1"
}

refuses() {  # refuses NAME FILE LINE...: and names the file
  plant "${@:2}"
  run "$check_layers" "$tree"
  ((status == 1)) && says "^$2:"
  verdict $? "the layer law refuses $1"
}

plant src/nn/resnet.cpp '#include <fmt/core.h>' '#include "lockstep/nn/network.hpp"'
run "$check_layers" "$tree"
verdict $status 'the layer law accepts a lawful tree'

refuses 'an upward include' src/nn/a.cpp '#include "lockstep/train/trainer.hpp"'
refuses 'a sideways include' src/optim/a.cpp '#include "lockstep/nn/network.hpp"'
refuses 'a port included by a layer' src/train/a.cpp '#include "ports/cpu/team.hpp"'
refuses 'a port included by another port' src/ports/mpi/a.cpp '#include "ports/cpu/team.hpp"'
refuses 'a private header of another layer' src/nn/a.cpp '#include "cluster/nodes/node_facts.hpp"'
refuses 'an include of a higher sub-folder in the same layer' src/cluster/topology/a.cpp \
  '#include "cluster/nodes/node_facts.hpp"'
refuses 'a private header by its short name' src/cluster/nodes/a.cpp '#include "node_facts.hpp"'
refuses 'a public header that no other folder uses' include/lockstep/nn/arena.hpp '#pragma once'
refuses 'a second file of one name in a layer' src/cluster/topology/node_facts.hpp '#pragma once'
refuses 'names in the namespace of another layer' src/nn/a.cpp 'namespace lockstep::train {' '}'
refuses 'a constant that is not in snake_case' src/nn/a.cpp 'constexpr int kMost = 3;'
refuses 'an include that climbs out of its folder' src/nn/a.cpp '#include "../base/a.hpp"'
refuses 'a library in a public header' include/lockstep/nn/network.hpp '#pragma once' \
  '#include <fmt/core.h>'
refuses 'MPI outside its port' src/comm/a.cpp '#include <mpi.h>'
refuses 'a call that waits inside MPI' src/ports/mpi/a.cpp 'MPI_Barrier(comm);'
refuses 'conditional compilation' src/nn/a.cpp '#ifdef NDEBUG' '#endif'
refuses 'unfinished work' src/nn/a.cpp '// TODO: finish'
refuses 'a header without #pragma once' include/lockstep/nn/a.hpp '#include <vector>'
refuses 'a folder that is not a layer' src/misc/a.cpp '#include <vector>'
mapfile -t long < <(seq -f '// %g' 501)
refuses 'a file of 501 lines' src/nn/a.cpp "${long[@]}"

plant src/nn/a.cpp
for i in {1..20}; do touch "$tree/src/nn/more_$i.cpp"; done
run "$check_layers" "$tree"
((status == 1)) && says '^src/nn:1: 2[0-9] files in one folder'
verdict $? 'the layer law refuses a folder of more than 20 files'
