#!/bin/sh
# Finds what is missing to build, test, measure, format or lint lockstep, and installs it if it may.
#
#   jobs/setup.sh [--check] build|cuda|grpc|cross|test|clients|cluster|bench|format|lint|fuzz|ci ...
#   jobs/setup.sh --versions      prints package=version of libraries that are there
#   jobs/setup.sh --packages build|test|...    prints the names of Debian's packages
#
# CUDA, cuDNN and NCCL are never installed. The Makefile names those that it did not find in
# CUDA_LACKS; the word cuda then prints how to get them.
#
# A package counts as installed when dpkg knows it, or when a probe finds what it provides (from an
# environment module or Spack), unless it is older than the table says (@2.6: is 2.6 or newer). The
# MPI is that of the compiler wrapper MPICXX, by default mpicxx; without one (MPICXX= ) no MPI is
# wanted. Missing packages are installed with apt-get, as root or with sudo,
# which may ask for a password if standard input is a terminal. Otherwise, and with --check, they
# are listed and the status is 1. With SYSROOT, a folder for another kind of processor, only probes
# count: CXX and pkg-config then look there.
set -eu

# package | wanted for | probe | environment module or Spack package
packages='
g++                | build | header source_location | gcc@12:
make               | build | command make           | gmake
pkg-config         | build | command pkg-config     | pkgconf
libopenmpi-dev     | mpi   | command mpicxx         | openmpi@4:
openmpi-bin        | mpi   | command mpirun         | openmpi@4:
libhdf5-dev        | build | library hdf5           | hdf5@1.10:~mpi
libhwloc-dev       | build | library hwloc          | hwloc@2.9:
libdnnl-dev        | build | header dnnl.hpp        | onednn@2.6:
libfmt-dev         | build | library fmt            | fmt@9:
libcli11-dev       | build | header CLI/CLI.hpp     | cli11
libtomlplusplus-dev | build | header toml++/toml.h  | tomlplusplus
nlohmann-json3-dev | build | header nlohmann/json.hpp | nlohmann-json
libjpeg-dev        | build | library libjpeg        | libjpeg-turbo
libpng-dev         | build | library libpng         | libpng
zlib1g-dev         | build | library zlib           | zlib
libdeflate-dev     | build | library libdeflate     | libdeflate
libzstd-dev        | build | library libzstd        | zstd
libwebp-dev        | build | library libwebp        | libwebp
liblzma-dev        | build | library liblzma        | xz
libbz2-dev         | build | header bzlib.h         | bzip2
libblosc-dev       | build | library blosc          | c-blosc
libmicrohttpd-dev  | build | library libmicrohttpd  | libmicrohttpd
libgrpc++-dev      | grpc  | library grpc++         | grpc
libprotobuf-dev    | grpc  | library protobuf       | protobuf
protobuf-compiler  | grpc  | command protoc         | protobuf
python3-pip        | cuda  | python pip             | py-pip
g++-aarch64-linux-gnu | cross | command aarch64-linux-gnu-g++ | gcc@12:
qemu-user-static   | cross | command qemu-aarch64-static | qemu
catch2             | test  | header catch2/catch.hpp,catch2/catch_all.hpp | catch2@2:
hdf5-tools         | test  | command h5dump         | hdf5@1.10:~mpi
python3-h5py       | test  | python h5py            | py-h5py
python3-yaml       | test  | python yaml            | py-pyyaml
man-db             | test  | command man            | man-db
jube               | test  | command jube           | jube
procps             | test  | command ps             | procps
strace             | test  | command strace         | strace
python3-venv       | clients | python ensurepip      | python
slurm-wlm          | cluster | command slurmctld    | slurm
munge              | cluster | command munged       | munge
libpmix-dev        | cluster | library pmix         | openpmix
iproute2           | cluster | command bridge       | iproute2
util-linux         | cluster | command nsenter      | util-linux
perl               | cluster | command perl         | perl
python3            | bench | command python3        | python
clang-format       | format | command clang-format  | llvm@14
clang-tidy-16      | lint  | command clang-tidy-16  | llvm@16
clang-16           | fuzz  | command clang++-16     | llvm@16
libclang-rt-16-dev | fuzz  | fuzzer clang++-16      | llvm@16
'

fail() {
  printf 'setup: %s\n' "$1" >&2
  exit 1
}

wanted=
check_only=
only_versions=
only_packages=
for word; do
  case $word in
    --check) check_only=yes ;;
    --versions) only_versions=yes wanted='build test' ;;
    --packages) only_packages=yes ;;
    build) wanted="$wanted build" ;;
    cuda) wanted="$wanted cuda" ;;
    grpc) wanted="$wanted build grpc" ;;
    cross) wanted="$wanted cross" ;;
    test) wanted="$wanted build test" ;;
    clients) wanted="$wanted clients" ;;
    cluster) wanted="$wanted cluster" ;;
    bench) wanted="$wanted build bench" ;;
    format) wanted="$wanted format" ;;
    lint) wanted="$wanted build test lint" ;;
    fuzz) wanted="$wanted build fuzz" ;;
    ci) wanted="$wanted build test format lint" ;;
    *) fail "unknown word \"$word\" (see the head of jobs/setup.sh)" ;;
  esac
done
[ -n "$wanted" ] || fail 'say what for: build, cuda, grpc, cross, test, clients, cluster, bench, format, lint, fuzz, ci'

case $wanted in
  *cuda*)
    if [ -n "${CUDA_LACKS:-}" ]; then
      cat <<END
setup: CUDA=1 asks for GPUs, and these were not found: $CUDA_LACKS
  nvcc     the CUDA toolkit, 12.0 or newer; if it is not in /usr/local/cuda: CUDA_HOME=folder
  cuDNN-9  if it is not in the toolkit or /usr: CUDNN_HOME=folder with include/ and lib/
  NCCL     if it is not in the toolkit or /usr: NCCL_HOME=folder with include/ and lib/
setup: on a cluster: module load cuda cudnn nccl (or the like; spack load cuda cudnn nccl)
setup: on Debian: add NVIDIA's repository (https://developer.nvidia.com/cuda-downloads), then
setup:   apt-get install cuda-toolkit cudnn9-cuda-13 libnccl-dev
setup: CUDA=0 builds for CPUs only
END
      exit 1
    fi >&2
    ;;
esac

wrapper=${MPICXX-mpicxx}
case $wanted in
  *build*)
    if [ "$wrapper" = mpicxx ]; then
      wanted="$wanted mpi"
    elif [ -n "$wrapper" ] && ! command -v "${wrapper%% *}" >/dev/null; then
      fail "MPICXX=$wrapper: there is no such command (MPI=none builds without MPI)"
    fi
    ;;
esac

compiler=${CXX:-g++}
has_header() {
  printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | $compiler -E -x c++ -
}
found_by_probe() {
  case $1 in
    command) command -v "$2" ;;
    library) pkg-config --exists "$2" || { [ "$2" = hdf5 ] && has_header hdf5.h; } ;;
    header) has_header "${2%,*}" || has_header "${2#*,}" ;;
    python) python3 -c "import $2" ;;
    fuzzer) echo 'extern "C" int LLVMFuzzerTestOneInput() { return 0; }' |
      "$2" -fsanitize=fuzzer,address -x c++ - -o /dev/null ;;
  esac >/dev/null 2>&1
}

# The wanted rows, as words: package, kind of probe, what it looks for, module name.
rows=$(printf '%s' "$packages" | tr -d '|' | while read -r package purpose probe; do
  case " $wanted " in *" $purpose "*) [ -z "$package" ] || echo "$package $probe" ;; esac
done)

# macros HEADER NAMES: their values, joined by points.
macros() {
  printf '#include <%s>\n%s\n' "$1" "$2" | $compiler -E -P -x c++ - | tail -n 1 | tr ' ' .
}
# version_of PACKAGE WHAT: nothing where it has none, or is not there.
version_of() {
  case $1 in
    g++) $compiler -dumpfullversion -dumpversion ;;
    libopenmpi-dev) mpicxx --showme:version | sed 's/.*Open MPI \([0-9.]*\).*/\1/' ;;
    libdnnl-dev) macros dnnl_version.h 'DNNL_VERSION_MAJOR DNNL_VERSION_MINOR' ;;
    catch2)
      if has_header catch2/catch_all.hpp >/dev/null; then
        macros catch2/catch_version_macros.hpp 'CATCH_VERSION_MAJOR CATCH_VERSION_MINOR'
      else
        echo 2
      fi
      ;;
    libhdf5-dev)
      pkg-config --modversion hdf5 ||
        macros H5public.h 'H5_VERS_MAJOR H5_VERS_MINOR H5_VERS_RELEASE'
      ;;
    *) pkg-config --modversion "$2" ;;
  esac 2>/dev/null | grep '^[0-9][0-9.]*$' || true
}
if [ -n "$only_versions" ]; then
  echo "$rows" | while read -r package _ what module; do
    case $module in *@*:*) echo "$package=$(version_of "$package" "$what")" ;; esac
  done
  exit 0
fi

if [ -n "$only_packages" ]; then
  echo "$rows" | cut -d' ' -f1
  exit 0
fi

installed=
if [ -z "${SYSROOT:-}" ] && command -v dpkg-query >/dev/null 2>&1; then
  # One query for all of them; a package that dpkg does not know is not an error here.
  installed=$(echo "$rows" | cut -d' ' -f1 | xargs dpkg-query -W \
    -f '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' || true)
fi
installed=" $(echo "$installed" | tr '\n' ' ') "

# too_old PACKAGE WHAT MODULE: prints which version is there, if it is older than MODULE allows.
too_old() {
  oldest=$(echo "$3" | sed -n 's/.*@\([0-9.]*\):.*/\1/p')
  [ -n "$oldest" ] || return 0
  version=$(version_of "$1" "$2")
  [ -n "$version" ] || return 0
  first=$(printf '%s\n' "$oldest" "$version" | sort -V | head -n 1)
  [ "$first" = "$oldest" ] || echo "$version is too old"
}
# of_another_kind PACKAGE: says so of a oneDNN whose calls return before their results are there.
of_another_kind() {
  case $1:$(macros dnnl.h DNNL_CPU_RUNTIME 2>/dev/null) in
    libdnnl-dev:512u) echo 'this one is for SYCL, and one for OpenMP is wanted' ;;
  esac
}
missing=$(echo "$rows" | while read -r package kind what module; do
  case $installed in
    *" $package "*) ;;
    *) found_by_probe "$kind" "$what" || { echo "$package $module"; continue; } ;;
  esac
  wrong=$(too_old "$package" "$what" "$module" && of_another_kind "$package")
  [ -z "$wrong" ] || echo "$package $module $wrong"
done)
[ -n "$missing" ] || exit 0
names=$(echo "$missing" | cut -d' ' -f1 | tr '\n' ' ')

as_root=
if [ "$(id -u)" != 0 ]; then
  as_root=none
  if sudo -n true 2>/dev/null; then
    as_root='sudo -n'
  elif [ -t 0 ] && command -v sudo >/dev/null 2>&1; then
    as_root=sudo
    if [ -z "$check_only" ] && command -v apt-get >/dev/null 2>&1; then
      echo "setup: these are missing: $names"
      echo 'setup: sudo, which installs them, may ask for your password'
      sudo -v || as_root=none
    fi
  fi
fi
if [ -n "$check_only" ] || [ "$as_root" = none ] || ! command -v apt-get >/dev/null 2>&1; then
  listed=$(echo "$missing" | while read -r _ module old; do
    printf ', %s%s' "$module" "${old:+ ($old)}"
  done)
  echo "setup: lockstep needs these, and they are missing${listed:+:${listed#,}}"
  printf '  %-20s %s\n' 'Debian package' 'module or Spack package (@2.6: is 2.6 or newer)'
  echo "$missing" | while read -r package module old; do
    printf '  %-20s %s\n' "$package" "$module${old:+  ($old)}"
  done
  if command -v apt-get >/dev/null 2>&1; then
    if [ "$as_root" != none ]; then
      echo "setup: install them with: jobs/setup.sh${wanted% mpi}"
    else
      echo "setup: an administrator installs them with: apt-get install $names"
    fi
  fi
  echo 'setup: or load the modules (module load ..., spack load ...) and try again'
  exit 1
fi >&2

echo "setup: installing $names"
export DEBIAN_FRONTEND=noninteractive
# sudo drops the environment: env passes the one variable that matters.
root() { $as_root env DEBIAN_FRONTEND="$DEBIAN_FRONTEND" "$@"; }
root apt-get -qq -o DPkg::Lock::Timeout=300 update || fail 'apt-get update failed (see above)'
# shellcheck disable=SC2086 # the names are words
root apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $names >/dev/null ||
  fail "apt-get could not install: $names"
