#!/bin/bash
# jobs/setup.sh installs what is missing, or says whom to ask. The machine's commands are fakes:
# nothing is installed.
# ci
# waits
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

if ! command -v script >/dev/null; then
  echo 'SKIP setup.sh installs what is missing: no command gives a terminal (script, of bsdutils)'
  exit 0
fi

# paper NAME LINE...: makes a fake command of that name, first on PATH.
mkdir paper
paper() {
  printf '%s\n' '#!/bin/sh' "${@:2}" >"paper/$1"
  chmod +x "paper/$1"
}
PATH=$WORK/paper:$PATH
export CXX=false  # finds no header
paper id 'echo 1000'
paper dpkg-query 'exit 1'
paper apt-get 'echo "apt-get $*" >>asked'
paper sudo 'echo "sudo $*" >>asked' \
  'case $1 in -n) exit 1 ;; -v) exit "$(cat allowed)" ;; *) exec "$@" ;; esac'

# setup STDIN WORD...: STDIN is `terminal` or `file`; the file `asked` lists the commands that it
# ran.
setup() {
  rm -f asked
  if [[ $1 == terminal ]]; then
    run script -qec "$repo/jobs/setup.sh ${*:2}" /dev/null
  else
    run "$repo/jobs/setup.sh" "${@:2}" </dev/null
  fi
}

echo 0 >allowed
setup file build
((status == 1)) && says 'an administrator installs them' && [[ $(cat asked) == 'sudo -n true' ]]
verdict $? 'without a terminal, a sudo that needs a password is not used'

setup terminal build
((status == 0)) && says 'may ask for your password' &&
  grep -q '^sudo env .*apt-get .*update' asked && grep -q '^apt-get .*install .*libdnnl-dev' asked
verdict $? 'at a terminal, sudo may ask for a password and install'

setup terminal --check build
((status == 1)) && says 'install them with: jobs/setup.sh build' && ! grep -q 'sudo -v' asked
verdict $? '--check asks for no password and says which command installs'

echo 1 >allowed
setup terminal build
((status == 1)) && says 'an administrator installs them' && ! grep -q apt-get asked
verdict $? 'a user who may not use sudo is told what an administrator has to install'

paper sudo 'echo "sudo $*" >>asked' 'shift; exec "$@"'
setup file build
((status == 0)) && grep -q '^sudo -n env .*apt-get .*install .*libdnnl-dev' asked
verdict $? 'a sudo that needs no password installs without a terminal, too'

paper clang++-16 'exit 1'
setup terminal fuzz
((status == 0)) && grep -q '^apt-get .*install .*libclang-rt-16-dev' asked &&
  ! grep -q '^apt-get .*install .* clang-16' asked
verdict $? 'a clang that lacks the run-time library of its fuzzer gets it'

# A machine with libraries of these versions.
paper pkg-config 'case $1 in --modversion) grep "^$2 " "$WORK/versions" | cut -d" " -f2 ;; esac'
paper compiler 'case $* in *-dump*) echo 12.2.0 ;;
  *-P*) case $(cat) in *RUNTIME) cat "$WORK/runtime" ;; *) cat "$WORK/onednn" ;; esac ;; esac'
echo 2u >runtime
export CXX=compiler
printf '%s\n' 'hdf5 1.8.21' 'hwloc 2.9.0' 'fmt 12.2.0' >versions
echo 2.5 >onednn
paper mpicxx 'echo "mpicxx: Open MPI 5.0.7 (Language: C++)"'
paper mpirun true
setup file --check build
((status == 1)) && says '^setup: lockstep needs these.*: hdf5@1.10:~mpi \(1.8.21 is too old\), onednn@2.6: \(2.5 is too old\)$' &&
  [[ $(head -n 1 <<<"$said") == setup:* ]]
verdict $? 'libraries that are too old are named, with both versions, in the first line'

printf '%s\n' 'hdf5 1.14.5' 'hwloc 2.12.0' 'fmt 12.2.0' >versions
echo 3 7 >onednn
setup file --check build
first=$status
setup file --versions
((first == 0 && status == 0)) && says '^libdnnl-dev=3.7$' && says '^libhdf5-dev=1.14.5$'
verdict $? 'newer libraries are taken, and the Makefile is told which'

echo 512u >runtime
setup file --check build
((status == 1)) && says 'onednn@2.6: \(this one is for SYCL, and one for OpenMP is wanted\)$'
verdict $? 'a oneDNN for SYCL, whose calls return before their results are there, is not taken'
echo 2u >runtime

MPICXX=mpicxx.none setup file --check build
((status == 1)) && says 'MPICXX=mpicxx.none: there is no such command'
verdict $? 'a compiler wrapper of MPI that is not there is named'

paper mpicxx 'echo "mpicxx: Open MPI 3.1.6 (Language: C++)"'
setup file --check build
((status == 1)) && says 'openmpi@4: \(3.1.6 is too old\)$' &&
  MPICXX= setup file --check build && ((status == 0))
verdict $? 'an old MPI is named, and without MPI none is wanted'
