#!/bin/bash
# What make makes again: an object that is not there, and everything in a build folder that was
# made from other sources. The compiler here only writes empty files.
# ci
# waits for make
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

cat >g++ <<'END'
#!/bin/bash
previous=
for word; do
  [[ $previous != -o ]] || : >"$word"
  previous=$word
done
END
chmod +x g++
# build FOLDER: the unit tests of the sources there, in FOLDER/build.
build() {
  mkdir -p "$1/build"
  touch "$1/build/found"
  run env -u MAKEFLAGS -u MAKELEVEL make -C "$1" \
    --no-print-directory -j2 CUDA=0 CCACHE= CXX="$PWD/g++" \
    BUILD=build --old-file=build/found build/unit_tests
}
compiled() { grep -c '^  compile ' <<<"$said"; }

for folder in one other; do
  mkdir $folder
  cp -r "$repo"/{Makefile,jobs,include,src,tests} $folder
done
build one
((status == 0 && $(compiled) > 50))
verdict $? 'make compiles everything in a new folder'
build one
((status == 0 && $(compiled) == 0)) && ! says '^  (archive|link) '
verdict $? 'what is there is not made again'

# As after a new source whose file is older than the last link.
rm one/build/obj/tests/unit/base/piece.o
build one
((status == 0)) && [[ $(compiled) == 1 ]] && says '^  link ' &&
  says '^  compile tests/unit/base/\{.*crc32c_test.*\}.cpp$'
verdict $? 'an object that is not there is made and linked, however old its source is'

cp -a one/build other/build
build other
((status == 0 && $(compiled) > 50)) && says '^  archive ' && says '^  link '
verdict $? 'a build folder that was copied from other sources is made again'
