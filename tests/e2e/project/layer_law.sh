#!/bin/bash
# tests/check_layers and tests/check_sizes find each violation: one at a time is planted in a small
# tree that keeps the law.
# ci
# waits
source "$(dirname "$0")/../../support/e2e.bash"
checks=$(realpath "$support/..")
check=$checks/check_layers
tree=$WORK/tree

plant() {  # plant FILE LINE...: a lawful tree with one more file
  rm -rf "$tree"
  mkdir -p "$tree"/include/lockstep/{base,nn} "$tree"/src/{base,nn,train} \
    "$tree/src/cluster/nodes" "$tree/$(dirname "$1")"
  printf '#pragma once\n#include <vector>\nnamespace lockstep {\n}\n' \
    >"$tree/include/lockstep/base/error.hpp"
  printf '#pragma once\n#include "lockstep/base/error.hpp"\nnamespace lockstep::nn {\n}\n' \
    >"$tree/include/lockstep/nn/network.hpp"
  printf '#include "lockstep/nn/network.hpp"\n' | tee "$tree/src/nn/network.cpp" \
    >"$tree/src/train/trainer.cpp"
  printf '#pragma once\n' >"$tree/src/cluster/nodes/node_facts.hpp"
  printf '# A page is no source: #if, TODO\n' >"$tree/src/README.md"
  printf '%s\n' "${@:2}" >"$tree/$1"
  local file
  for file in $(find "$tree/src" -type f ! -name '*.md'); do  # short files are another law's
    (($(wc -l <"$file") >= 40)) || seq -f '// %g' 40 >>"$file"
  done
}

refuses() {  # refuses NAME FILE LINE...: and names the file
  plant "${@:2}"
  run "$check" "$tree"
  ((status == 1)) && says "^$2:"
  verdict $? "the law refuses $1"
}

plant src/nn/resnet.cpp '#include <fmt/format.h>' '#include "lockstep/nn/network.hpp"'
run "$check" "$tree"
verdict $status 'the layer law accepts a lawful tree'

plant src/base/x86/twice.cpp '#include <vector>'
mkdir "$tree/src/base/arm" && cp "$tree"/src/base/{x86,arm}/twice.cpp
run "$check" "$tree"
verdict $status 'it accepts a source for each kind of processor, of one name'
plant src/base/x86/only.hpp '#pragma once'
printf '#include "base/x86/only.hpp"\n' >"$tree/src/base/any.cpp"
run "$check" "$tree"
((status == 1)) && says '^src/base/any.cpp:1: base/x86/only.hpp is for one kind of processor'
verdict $? 'the law refuses what is for one kind of processor in a source for all'

refuses "an instruction of x86's in a source for all" src/base/a.cpp \
  '__attribute__((target_clones("avx2", "default"))) void add();'
refuses 'a size of pages that is not asked for' src/base/a.cpp 'constexpr int page = 4096;'
refuses 'a relaxed atomic without a reason' src/base/a.cpp 'x.load(std::memory_order_relaxed);'

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
refuses 'a header of a port in the namespace of a contract' src/ports/tcp/a.hpp '#pragma once' \
  'namespace lockstep::comm {' '}'
refuses 'names of a port in the namespace of another port' src/ports/mpi/a.cpp \
  'namespace lockstep::tcp {' '}'
refuses 'a constant that is not in snake_case' src/nn/a.cpp 'constexpr int kMost = 3;'
refuses 'an include that climbs out of its folder' src/nn/a.cpp '#include "../base/a.hpp"'
refuses 'a library in a public header' include/lockstep/nn/network.hpp '#pragma once' \
  '#include <fmt/format.h>'
refuses 'MPI outside its port' src/comm/a.cpp '#include <mpi.h>'
refuses 'a call that waits inside MPI' src/ports/mpi/a.cpp 'MPI_Barrier(comm);'
refuses 'conditional compilation' src/nn/a.cpp '#ifdef NDEBUG' '#endif'
refuses 'unfinished work' src/nn/a.cpp '// TODO: finish'
refuses 'a header without #pragma once' include/lockstep/nn/a.hpp '#include <vector>'
refuses 'a folder that is not a layer' src/misc/a.cpp '#include <vector>'
refuses 'a library outside of all of its homes' src/data/pack/a.cpp '#include <hdf5.h>'
refuses 'a library that has no home' src/nn/a.cpp '#include <boost/any.hpp>'

plant src/nn/plan/network.cpp '#include "lockstep/nn/network.hpp"'
rm "$tree/src/nn/network.cpp"
run "$check" "$tree"
((status == 1)) && says '^include/lockstep/nn/network.hpp:1: its source is in src/nn/plan'
verdict $? 'the law refuses a public header that does not lie as its source does'

plant src/train/a.hpp '#pragma once' 'class Plan {};' 'class PlanSpec {};'
echo 'struct Plan {};' >>"$tree/src/cluster/nodes/node_facts.hpp"
run "$check" "$tree"
((status == 1)) && says '^src/train/a.hpp:2: Plan is also a type of cluster' && ! says PlanSpec
verdict $? 'the law refuses a type of two first-level folders'

# ---- sizes ---------------------------------------------------------------------------------------
check=$checks/check_sizes
lines() { seq -f "$1" "$2"; }                                 # lines FORMAT COUNT
wide() { printf '%s%0*d' "$1" "$(($2 - ${#1}))" 0; }          # wide BEGIN COLUMNS: one line

mapfile -t most < <(lines '// %g' 599)
plant src/nn/a.cpp "${most[@]}" "$(wide '// ' 100)"
mapfile -t most < <(lines '  work(%g);' 58)
printf '%s\n' 'void work() {' "${most[@]}" '}' >"$tree/src/nn/b.cpp"
printf '| %s\nhttps://%s\n' "$(wide x 200)" "$(wide x 200)" >"$tree/README.md"
run "$check" "$tree"
verdict $status 'sizes up to the limits, wide rows of tables and long addresses are accepted'

mapfile -t long < <(lines '// %g' 601)
refuses 'a source of 601 lines' src/nn/a.cpp "${long[@]}"
for name in a.hpp a.inc a.cu a.cuh; do
  refuses "$name of 601 lines" "src/nn/$name" "${long[@]}"
done
mapfile -t long < <(lines '# %g' 601)
refuses 'a script of 601 lines' tests/run '#!/bin/bash' "${long[@]}"
refuses 'a page of 601 lines' jobs/README.md "${long[@]}"

mapfile -t long < <(lines '    work(%g);' 59)
refuses 'a function of 61 lines' src/nn/a.cpp 'template <class T>' 'void work(T) {' \
  "${long[@]:1}" '}'
refuses 'a member function of 61 lines' src/nn/a.cpp 'namespace lockstep {' 'class Work {' \
  '  void work() const {' "${long[@]}" '  }' '};' '}'
refuses 'a constructor of 61 lines' src/nn/a.cpp 'Work::Work(int a)' '    : a_{a} {' \
  "${long[@]}" '}'
refuses 'a test of 61 lines' tests/unit/nn/a_test.cpp 'TEST_CASE("a brace: {", "[nn]") {' \
  "${long[@]}" '}'
mapfile -t long < <(lines '    work(%g)' 60)
refuses 'a function of 61 lines in Python' tests/a.py 'def work():' "${long[@]}"
mapfile -t long < <(lines '  work %g' 59)
refuses 'a function of 61 lines in a script' tests/e2e/a.sh 'work() {' "${long[@]}" '}'

refuses 'a source that is 101 columns wide' src/nn/a.cpp "$(wide '// ' 101)"
refuses 'a wide text in quotes of a source' src/nn/a.cpp "$(wide 'f("' 101)\");"
refuses 'a script that is 101 columns wide' jobs/a.sh "$(wide '# ' 101)"
refuses 'a job that is 101 columns wide' jobs/a.sbatch "$(wide '# ' 101)"
refuses 'a wide program without an ending' tests/a '#!/usr/bin/env python3' "$(wide '# ' 101)"
refuses 'a page that is 101 columns wide' data/a.md "$(wide '' 101)"

for folder in src/nn include/lockstep/nn tests/unit/nn; do
  plant "$folder/a.cpp"
  for ((i = $(find "$tree/$folder" -type f | wc -l); i < 24; ++i)); do
    touch "$tree/$folder/more_$i.cpp"
  done
  run "$check" "$tree"
  ! says ' files in one folder' && touch "$tree/$folder/more_24.cpp" && run "$check" "$tree" &&
    ((status == 1)) && says "^$folder:1: 25 files in one folder"
  verdict $? "the law refuses more than 24 files in $folder, and not 24"
done

for name in src/nn/a.cpp src/nn/a.hpp src/ports/cpu/a.inc src/ports/cuda/a.cuh; do
  plant "$name"
  lines '// %g' 39 >"$tree/$name"
  run "$check" "$tree"
  ((status == 1)) && says "^$name:1: shorter than 40 lines"
  verdict $? "the law refuses $name of 39 lines"
done
for name in include/lockstep/nn/a.hpp src/ports/none/a.cpp src/base/room.cpp; do
  plant "$name"
  lines '// %g' 1 >"$tree/$name"
  run "$check" "$tree"
  verdict $status "a short file that has a reason is accepted: $name"
done
refuses 'a reason that a file of 40 lines does not need' src/base/room.cpp
plant src/base/http.cpp
mkdir -p "$tree/tests" && cp "$check" "$tree/tests"
run "$tree/tests/check_sizes"
says '^src/base/room.cpp:1: is not there' && ! says '^src/base/http.cpp:1: is not there'
verdict $? 'the law refuses a reason for a file that is not there'

plant data/large.bin
head -c 132000 /dev/zero >"$tree/data/large.bin"
run "$check" "$tree"
verdict $status 'a large file that git does not have is accepted'
git -C "$tree" init -q && git -C "$tree" add data
run "$check" "$tree"
((status == 1)) && says '^data/large.bin:1: 129 KiB, more than 128'
verdict $? 'the law refuses a file of 129 KiB that git has'
