#!/bin/bash
# `make dist` packs all that git has into an archive that has the program's version, and what is
# unpacked needs no git.
# seconds: 120
# ci
# waits for make
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
in_make() {  # in_make FOLDER WORD...: without a compiler, CUDA and what a make above this one says
  run env -u MAKEFLAGS -u MAKELEVEL make -C "$1" --no-print-directory CUDA=0 CXX=true BUILD=build \
    --old-file=build/found "${@:2}"
}

# A checkout of the sources as they are here, committed or not.
mkdir -p tree/data tree/build
cp -r "$repo"/{.ci,.clang-format,.clang-tidy,.gitignore,Makefile,README.md} tree
cp -r "$repo"/{include,jobs,src,tests} tree
cp -r "$repo"/data/{*.md,*.py,published} tree/data
touch tree/build/found
as=(-c user.name=test -c user.email=test@localhost)
git -C tree init -q && git -C tree add . && git -C tree "${as[@]}" commit -qm all
echo '/* not committed */' >>tree/src/base/room.cpp

version=$("$LOCKSTEP" --version | cut -d' ' -f2)
in_make tree dist
archive=tree/build/dist/lockstep-$version.tar.gz
((status == 0)) && says 'what is not committed is left out' && says "lockstep-$version.tar.gz$" &&
  [[ $(ls tree/build/dist) == "lockstep-$version.tar.gz" ]]
verdict $? 'make dist names the archive by what lockstep --version says'
tar xzf "$archive" && [[ $(ls -d lockstep-*) == "lockstep-$version" ]] &&
  diff <(cd "lockstep-$version" && find . -type f | sort) \
    <(cd tree && git ls-files | sed 's|^|./|' | sort)
verdict $? 'it has the files that git has, and no other ones'

git -C tree checkout -q src/base/room.cpp
mkdir -p "lockstep-$version/build" && touch "lockstep-$version/build/found"
for folder in tree "lockstep-$version"; do in_make $folder build/build_id.cpp; done
((status == 0)) && grep -Eq '"[0-9a-f]{16}"' "lockstep-$version/build/build_id.cpp" &&
  cmp {tree,"lockstep-$version"}/build/build_id.cpp
verdict $? 'what is unpacked has the build id of the checkout, without git'
in_make "lockstep-$version" dist
((status == 2)) && says 'this folder is not a checkout'
verdict $? 'make dist in an unpacked archive is an error that says so'
