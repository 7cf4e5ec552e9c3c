#!/bin/bash
# Packs a build into a folder that runs on a machine with nothing but Linux, glibc and, for GPUs,
# the driver and CUDA's libraries (cuDNN 9, NCCL 2):
#
#   jobs/bundle.sh BUILD FOLDER
#
# FOLDER/lockstep and FOLDER/mpirun are small scripts that set the paths and start the programs in
# bin/. FOLDER/gpu-check runs everything that needs a GPU (tests/gpu/gpu-check says what). All
# libraries are included except CUDA's, cuDNN's and NCCL's; of Open MPI's plugins only those for a
# single machine. glibc is used from the bundle, with its loader, where the machine's is older than
# the programs need. The folder may be moved and may be read-only.
set -euo pipefail
shopt -s nullglob
(($# == 2)) || { echo 'usage: jobs/bundle.sh BUILD FOLDER' >&2; exit 2; }
build=$(realpath "$1") folder=$(realpath -m "$2")  # as seen from where it is called
cd "$(dirname "$0")/.."

new=$folder.new
rm -rf "$new"
mkdir -p "$new"/{bin,lib/openmpi,lib/pmix,share/openmpi,etc}

# ---- programs, and the plugins that they load ----------------------------------------------------
for program in lockstep gpu_tests; do
  [[ ! -e $build/$program ]] || cp "$build/$program" "$new/bin/"
done
mkdir -p "$new/share/lockstep"
cp -r jobs/recipes "$new/share/lockstep/"
with_mpi=$(ldd "$build/lockstep" | grep -E 'libmpi\.so\.40 ' || true)

where() { ompi_info --parsable --path "$1" | sed -n "s/^path:$1://p" | head -n 1; }
needs() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
# Only what one machine needs for sums and messages: no fabrics, files or one-sided memory.
unused='io|fs|fbtl|fcoll|sharedfp|osc|topo_treematch|vprotocol|[a-z]+_monitoring'
unused+='|coll_(adapt|han)|op_avx|pml_cm|plm_rsh|filem|crs|ras|schizo_(jsm|flux)|pmix_flux'
take_open_mpi() {
  local program plugin
  for program in mpirun orted; do cp -L "$(command -v $program)" "$new/bin/$program"; done
  for plugin in "$(where pkglibdir)"/mca_*.so; do
    [[ ${plugin##*/} =~ ^mca_($unused)(_|\.) ]] ||
      grep -Eq '^lib(fabric|ibverbs|psm|psm_infinipath|psm2|ucp|ucs|oshmem|nl-3)\.so' \
        <(needs "$plugin") ||
      cp "$plugin" "$new/lib/openmpi/"
  done
  cp "$(where pkgdatadir)"/help-*.txt "$new/share/openmpi/"
}
[[ ! $with_mpi ]] || take_open_mpi

# ---- libraries -------------------------------------------------------------------------------
glibc='ld-linux.*|lib(c|m|pthread|dl|rt|resolv|util|anl|nss_.*|BrokenLocale|mvec|thread_db)'
theirs='lib(cuda|cudart|cudnn.*|nccl|nvidia-.*|cublas.*|nvrtc.*|nvJitLink)'

# Debian's HDF5 can read from Amazon S3, and so it needs curl, which brings 16 MB. lockstep does not
# read from there: a library of the same name, whose functions end the program, replaces it.
stand_in() {  # stand_in SONAME PATTERN-OF-VERSION USER
  local symbols version
  symbols=$(readelf -W --dyn-syms "$3" | grep -oE "[A-Za-z0-9_]+@$2" | sort -u)
  version=$(head -n 1 <<<"${symbols#*@}")
  [[ -n $symbols ]] || return 0
  sed 's/@.*/(void) { __builtin_trap(); }/; s/^/void /' <<<"$symbols" >"$new/stand_in.c"
  echo "$version { *; };" >"$new/stand_in.map"
  ${CC:-cc} -shared -fPIC -fno-builtin -Wl,-soname,"$1" -Wl,--version-script="$new/stand_in.map" \
    -o "$new/lib/$1" "$new/stand_in.c"
  rm "$new"/stand_in.*
}

# take FILE: copies every library that it needs, and what those need.
take() {
  local name path
  while read -r name path; do
    if [[ $name =~ ^($glibc|$theirs)\.so || -e $new/lib/$name ]]; then continue; fi
    [[ $path == /* ]] || { echo "$1 needs $name, which is nowhere" >&2; exit 1; }
    cp -L "$path" "$new/lib/$name"
    case $name in
      libhdf5*)
        stand_in libcurl.so.4 'CURL_[A-Z0-9_]+' "$path"
        stand_in libcrypto.so.3 'OPENSSL_[0-9.]+' "$path"
        ;;
      libpmix*) cp "$(dirname "$(realpath "$path")")"/pmix/*.so "$new/lib/pmix/" ;;
    esac
    take "$path"
  done < <(join <(needs "$1" | sort -u) <(ldd "$1" | awk '$2 == "=>" { print $1, $3 }' | sort -u))
}
for file in "$new"/bin/* "$new"/lib/openmpi/*; do take "$file"; done
for file in "$new"/lib/pmix/*; do take "$file"; done
# glibc, for older machines: its parts fit only each other.
glibc_of=$(ldd "$new/bin/lockstep" | awk '$1 == "libc.so.6" { print $3 }')
mkdir -p "$new/packed/glibc"
for name in ld-linux-{x86-64,aarch64} \
  lib{c,m,mvec,pthread,dl,rt,resolv,util,anl,nss_files,nss_dns}; do
  for file in "${glibc_of%/*}/$name".so.*; do cp -L "$file" "$new/packed/glibc/"; done
done
loader=$(basename "$new"/packed/glibc/ld-linux*)
needed=$(grep -aohE 'GLIBC_2\.[0-9]+' -r "$new"/bin "$new"/lib/*.so* "$new"/lib/{openmpi,pmix} |
  sort -uV | tail -n 1)
chmod -R u+w "$new"
# oneDNN is more than half of everything: it, the next largest and glibc are unpacked at the first
# start, by env.sh.
large='dnnl\|gnutls\|hdf5[^/]*\|p11-kit\|stdc[+][+]\|unistring'
find "$new/lib" -maxdepth 1 -regex ".*/lib\($large\)\.so\..*" -exec mv -t "$new/packed" {} +
find "$new/bin" "$new/lib" "$new/packed" -type f -exec strip --strip-unneeded {} +
# Half of the tests' file is the program again: gpu-check unpacks it when it runs.
[[ ! -e $new/bin/gpu_tests ]] || gzip -9 "$new/bin/gpu_tests"
(cd "$new/packed" && sha256sum ./*.so.* glibc/* >"../lib/packed.sums")
tar --sort=name --owner=0 --group=0 --mtime=@0 -C "$new/packed" -c . |
  gzip -9n >"$new/lib/packed.tar.gz"
rm -r "$new/packed"

# ---- how they are started --------------------------------------------------------------------
sum=$(sha256sum "$new/lib/packed.tar.gz")
sed "s/@sum@/${sum:0:16}/; s/@loader@/$loader/; s/@glibc@/${needed#GLIBC_2.}/" \
  >"$new/env.sh" <<'END'
# Sourced by the scripts in this folder: its programs and libraries are used before the machine's.
# Sets $bundle, its folder, $libraries, where the programs find theirs, and $loader, which must
# start them where glibc is older than they need.
case $0 in */*) bundle=${0%/*} ;; *) bundle=$(command -v "$0") bundle=${bundle%/*} ;; esac
bundle=$(cd "$bundle" && pwd -P)

# CUDA's libraries come from the machine: from the loader's default folders, a toolkit or Python's
# wheels.
libraries=${LD_LIBRARY_PATH-}
: "${LOCKSTEP_WHEELS=$(python3 -c 'import nvidia
print(*(path + "/*/lib" for path in nvidia.__path__))' 2>/dev/null)}"
export LOCKSTEP_WHEELS
for path in /usr/local/cuda/lib64 /usr/local/cuda/lib "${CUDA_HOME:-/usr/local/cuda}/lib64" \
  /usr/lib/python3*/site-packages/nvidia/*/lib /usr/local/lib/python3*/*-packages/nvidia/*/lib \
  /opt/*/lib/python3*/site-packages/nvidia/*/lib $LOCKSTEP_WHEELS; do
  # cuDNN opens libnvrtc for the engines that it compiles itself; without it they are missing.
  for library in "$path"/libcudnn.so.9 "$path"/libnccl.so.2 "$path"/libnvrtc.so.*; do
    [ -e "$library" ] || continue
    case :$libraries: in
      *:"$path":*) ;;
      *) libraries=${libraries:+$libraries:}$path ;;
    esac
  done
done

# Some libraries are packed. They are unpacked in the bundle's folder, or if that is read-only, in a
# folder that only this user can write to. The first process to finish renames them into place,
# complete. What is found in such a folder is used only when all files have the right sums.
place=
unpacked_in() {  # unpacked_in FOLDER
  if [ "$1" = "$bundle/lib" ]; then
    [ ! -d "$1/unpacked" ] || { place=$1/unpacked; return; }
  else
    mkdir -p -m 700 "$1" 2>/dev/null && [ ! -L "$1" ] && [ -O "$1" ] || return 1
    case $(ls -ld "$1") in drwx--[-S]---*) ;; *) return 1 ;; esac
    if [ -d "$1/unpacked" ]; then
      if (cd "$1/unpacked" && sha256sum --status -c "$bundle/lib/packed.sums"); then
        place=$1/unpacked
        return
      fi
      rm -rf "$1/unpacked"
    fi
  fi
  new=$(mktemp -d "$1/.unpack.XXXXXX" 2>/dev/null) || return 1
  if gzip -dc "$bundle/lib/packed.tar.gz" | tar -x -f - -C "$new" && chmod 755 "$new"; then
    mv -T "$new" "$1/unpacked" 2>/dev/null || rm -rf "$new"  # another process was first
    [ ! -d "$1/unpacked" ] || place=$1/unpacked
  fi
  [ -n "$place" ] || { rm -rf "$new"; return 1; }
}
for folder in "$bundle/lib" "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/lockstep-@sum@" \
  "${TMPDIR:-/tmp}/lockstep-@sum@-${USER:-$(id -u)}"; do
  [ -n "$place" ] || unpacked_in "$folder" || true
done
[ -n "$place" ] || {
  echo "error: the libraries could not be unpacked, neither in $bundle/lib nor in a cache folder nor" \
    "in ${TMPDIR:-/tmp}: is there room, and may one be written to?" >&2
  exit 1
}
libraries=$bundle/lib:$place${libraries:+:$libraries} loader=
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null) glibc=${glibc#glibc 2.}
case $glibc in '' | *[!0-9]*) glibc=0 ;; esac
[ "$glibc" -ge @glibc@ ] || loader=$place/glibc/@loader@

export OPAL_PREFIX="$bundle" OPAL_BINDIR="$bundle/bin" OPAL_LIBDIR="$bundle/lib"
export OPAL_PKGLIBDIR="$bundle/lib/openmpi" OPAL_PKGDATADIR="$bundle/share/openmpi"
export OPAL_SYSCONFDIR="$bundle/etc" PMIX_PKGLIBDIR="$bundle/lib/pmix"
export OMPI_MCA_plm=isolated  # this machine only: no ssh is asked for
END
for program in "$new"/bin/*; do
  [[ $program != */@(orted|gpu_tests.gz) ]] || continue
  cat >"$new/${program##*/}" <<'END'
#!/bin/sh
. "${0%/*}/env.sh"
program=$bundle/bin/${0##*/}
# The machine's own programs, which these may start, keep their glibc.
[ -z "$loader" ] || exec "$loader" --library-path "${loader%/*}:$libraries" \
  --argv0 "$bundle/${0##*/}" "$program" "$@"
export LD_LIBRARY_PATH="$libraries"
exec "$program" "$@"
END
  chmod +x "$new/${program##*/}"
done
cp -r jobs/configs "$new/share/"
[[ ! -d jobs/gpus ]] || cp -r jobs/gpus "$new/share/"
cp tests/gpu/gpu-check "$new/gpu-check"
cp tests/gpu/{speed,trainings}.bash tests/bench/torch_{gpu,networks}.py "$new/share/"

# What it was made of, for reports from the machine that it is copied to.
echo "bundle of $(git describe --always --dirty 2>/dev/null || echo sources without git)," \
  "made $(date -u '+%Y-%m-%d %H:%M UTC')" >"$new/made"

rm -rf "$folder"
mv "$new" "$folder"
find "$folder" -type f -printf '%s\n' | awk -v folder="$folder" \
  '{ bytes += $1 } END { printf "%s: %.1f MB\n", folder, bytes / 1e6 }'
