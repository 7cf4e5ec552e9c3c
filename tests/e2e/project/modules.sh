#!/bin/bash
# What `make install` puts there for module systems, with Environment Modules and with Lmod. The two
# cannot be installed together, so Debian's packages are fetched, unpacked, and laid over /usr and
# /etc for some processes. A tool that is installed is taken as it is.
# ci
# waits
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
run make --no-print-directory -C "$repo" BUILD="$(dirname "$LOCKSTEP")" --old-file="$LOCKSTEP" \
  PREFIX="$WORK/first" install
((status == 0)) && [[ -s first/share/man/man1/lockstep.1 ]]
verdict $? 'make install makes modules'
version=$("$LOCKSTEP" --version | cut -d ' ' -f 2)

# fetch TOOL: its packages, with what they need and this machine lacks, unpacked into the folder
# $root; which is empty where the tool is installed. False, and `why` says it, where it cannot be.
fetch() {
  local packages place
  root=''
  ! dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed || return 0
  place=$(dirname "$LOCKSTEP")/modules/$1
  packages=$(apt-get -s install --no-install-recommends "$1" 2>/dev/null |
    sed -n 's/^Inst \([^ ]*\).*/\1/p' | tr '\n' ' ')
  [[ $packages ]] || { why="no package $1 is known here (apt-get update)" && return 1; }
  root=$place/root
  [[ $(cat "$place/made" 2>/dev/null) != "$packages" ]] || return 0
  rm -rf "$place" && mkdir -p "$root"/{usr,etc}
  (cd "$place" && apt-get -qq download $packages && for one in *.deb; do
    dpkg-deb -x "$one" "$root" || exit
  done) >"$WORK/fetch.log" 2>&1 || { why='its packages cannot be fetched' && return 1; }
  echo "$packages" >"$place/made"
}

cat >inside.sh <<'END2'
root=$1
if [[ $root ]]; then
  for folder in usr etc; do
    mount -t overlay overlay -o "lowerdir=$root/$folder:/$folder" /$folder || exit 77
  done
fi
PATH=/usr/local/bin:/usr/bin:/bin  # Lmod leaves out what is there twice
unset MANPATH XDG_DATA_DIRS
if [[ -e /usr/share/lmod && $2 == lmod ]]; then
  source /etc/profile.d/lmod.sh
else
  source /usr/share/modules/init/bash
fi >/dev/null
module use "$WORK/first/share/modulefiles" || exit
set -u
# What is kept for later, not for programs: the tools' own lists.
theirs='^(__LMOD_|__MODULES_|_ModuleTable|LOADEDMODULES=$)'
keep() { env -0 | grep -zEv "$theirs" | sort -z >"$WORK/$1"; }
eval "$3"
END2
# inside COMMANDS: in a shell with the module command.
inside() { run "${space[@]}" bash "$WORK/inside.sh" "$root" "$tool" "$1"; }

# A variable that is not set, one that is empty, and those with and without an empty folder.
mans='- "" : /usr/share/man "$WORK:" ":$WORK" "$WORK::/b"'
datas='- "" /usr/share /usr/local/share:/usr/share'
some='for man in - /usr/share/man; do for data in - /usr/share; do'
each="for man in $mans; do for data in $datas; do"
cycle='
    if [[ $man == - ]]; then unset MANPATH; else export MANPATH=$man; fi
    if [[ $data == - ]]; then unset XDG_DATA_DIRS; else export XDG_DATA_DIRS=$data; fi
    case="MANPATH $man, XDG_DATA_DIRS $data"
    keep before
    manpath 2>/dev/null | tr : "\n" | sort -u >"$WORK/folders"
    module load lockstep || echo "no load: $case"
    [[ $(lockstep --version) == "lockstep $version "* ]] || echo "no program: $case"
    [[ $(type -P lockstep) == "$at/bin/lockstep" ]] || echo "another program: $case"
    page=$(man -w lockstep)
    [[ $page == "$at/share/man/man1/lockstep.1" ]] || echo "page $page: $case"
    manpath 2>/dev/null | tr : "\n" | sort -u | comm -13 - "$WORK/folders" | grep . &&
      echo "these pages are hidden: $case"
    [[ $data == [-] || ! $data || $XDG_DATA_DIRS == "$at/share:$data" ]] || echo "data: $case"
    module unload lockstep || echo "no unload: $case"
    keep after
    cmp "$WORK/before" "$WORK/after" || echo "not as before: $case"
    echo cycle
  done
done'
# whole N: there were N cycles, and nothing else was said.
whole() { ((status == 0)) && [[ $said == "$(yes cycle | head -n "$1")" ]]; }

for tool in environment-modules lmod; do
  law="with $tool, load makes program and page known and hides nothing; unload undoes all of it"
  space=(unshare -m)
  (($(id -u) == 0)) || space=(unshare -Urm)
  fetch $tool || { echo "SKIP $law: $why" && continue; }
  [[ $root ]] || space=()
  command -v man >/dev/null || { echo "SKIP $law: there is no man" && continue; }
  inside true
  ((status != 77)) || { echo "SKIP $law: nothing can be laid over /usr: $said" && continue; }
  export version at=$WORK/first
  inside "$each$cycle"
  whole 28
  verdict $? "$law"

  mv first moved
  mkdir first
  at=$WORK/moved
  inside "module unuse $WORK/first/share/modulefiles; module use $WORK/moved/share/modulefiles
    $some$cycle"
  whole 4
  verdict $? "with $tool, all of that when the prefix has been moved"
  if [[ $tool == lmod ]]; then
    mv moved/share/modulefiles/lockstep/$version.lua lua
    inside "module use $WORK/moved/share/modulefiles; $some$cycle"
    mv lua moved/share/modulefiles/lockstep/$version.lua
    whole 4
    verdict $? 'Lmod reads the module for Environment Modules, too'
  fi
  rmdir first
  mv moved first

  inside 'module -t avail lockstep; module whatis lockstep; module help lockstep'
  ((status == 0)) && says 'trains ResNets' && says 'man lockstep' &&
    (($(grep -cE "^lockstep/$version(\(default\))?$" <<<"$said") == 1)) &&
    ! says "^lockstep/$version\.lua"
  verdict $? "with $tool, there is one module, and it says what it is"

  rm -rf second && cp -a first second
  for file in second/share/modulefiles/lockstep/*; do mv "$file" "${file/$version/99}"; done
  inside 'export LMOD_DISABLE_SAME_NAME_AUTOSWAP=yes
    module use "$WORK/second/share/modulefiles"
    module load lockstep/$version && echo loaded
    module load lockstep/99 || echo refused
    type -P lockstep'
  [[ $(tail -n 1 <<<"$said") == "$WORK/first/bin/lockstep" ]] && says '^loaded' &&
    says '^refused' && says 'conflict|unload the loaded'
  verdict $? "with $tool, a second version is an error while one is loaded"
done
