#!/bin/bash
# What `make bundle` packs needs only glibc, a shell with gzip and coreutils, and CUDA's libraries
# if it was built with them. The tests run it in a root folder that holds nothing else.
# ci
# computes
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
unset XDG_CACHE_HOME  # a bundle has its own rules for caches

build=$(dirname "$LOCKSTEP")
name='a bundle trains on 2 ranks in a root folder with only glibc, gzip, tar and coreutils'
if ! unshare --mount --pid --fork --kill-child true 2>/dev/null; then
  echo "SKIP $name: this container may not create namespaces"
  exit 0
fi

run "$repo/jobs/bundle.sh" "$build" "$WORK/packed"
bytes=$(find packed -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')
says '^.*/packed: [1-9][0-9.]* MB$' && [[ $bytes -gt 10000000 && $bytes -le 60000000 ]]
verdict $? 'a bundle is at most 60,000,000 bytes'

# It is moved after packing: it must not depend on where it was packed.
mkdir -p root/{dev,proc,tmp,work,bin,etc,lib64,lib/x86_64-linux-gnu}
mv packed root/bundle
cp -L /bin/sh root/bin/
# The commands that unpack libraries and ask for glibc's version, and their libraries.
for command in gzip tar mkdir mktemp mv chmod rm id ls sha256sum getconf; do
  cp -L "$(command -v $command)" root/bin/
  while read -r library; do cp -Ln "$library" root/lib/x86_64-linux-gnu/; done \
    < <(ldd "$(command -v $command)" | awk '$2 == "=>" { print $3 }')
done
cp -L /lib64/ld-linux-x86-64.so.2 root/lib64/
for library in libc libm libpthread libdl librt libresolv libutil libanl libnss_files; do
  for file in /lib/x86_64-linux-gnu/$library.so.*; do cp -L "$file" root/lib/x86_64-linux-gnu/; done
done
echo 'root:x:0:0:root:/work:/bin/sh' >root/etc/passwd
# The machine's own libraries, as on a machine with GPUs; mounted, not copied, because they are
# large.
mkdir -p root/usr/local/cuda/lib
for library in libcudnn.so.9 libnccl.so.2; do
  path=$(ldd "$LOCKSTEP" | awk -v name=$library '$1 == name { print $3 }')
  [[ -z $path ]] || touch "root/usr/local/cuda/lib/$library"
done

cat >enter.sh <<END
set -e
mount --bind /dev root/dev
mount -t proc proc root/proc
for library in root/usr/local/cuda/lib/*; do
  [ ! -e "\$library" ] ||
    mount --bind "\$(ldd "$LOCKSTEP" |
      awk -v name="\${library##*/}" '\$1 == name { print \$3 }')" "\$library"
done
exec chroot root /bin/sh -c "\$*"
END
inside() {
  run unshare --mount --pid --fork --kill-child bash enter.sh cd /work '&&' PATH=/bin \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "$@"
}

inside /bundle/lockstep pack --from shapes --out small --train-rows 250 --val-rows 53 --resize 8
inside /bundle/mpirun --oversubscribe --bind-to none -np 2 /bundle/lockstep train --model resnet20 \
  --data.train small/train --data.val small/val --batch 32 --epochs 1 --out run
says 'batch 32 = 2 rank' && says '^done: 1 epoch' && says 'run: config.toml'
verdict $? "$name"

inside /bundle/lockstep topo
says 'no CUDA device: '
verdict $? 'a bundle without a driver says why there is no CUDA device'

# If the folder is read-only, they are unpacked elsewhere, and later starts find it there.
rm -rf root/bundle/lib/unpacked
sed -i 's|^exec chroot|mount --bind root/bundle root/bundle; mount -o remount,bind,ro root/bundle; exec chroot|' enter.sh
inside HOME=/work /bundle/lockstep topo '&&' \
  HOME=/bundle TMPDIR=/tmp /bundle/lockstep topo
says '^no CUDA device: ' && [[ ! -e root/bundle/lib/unpacked ]] &&
  compgen -G 'root/work/.cache/lockstep-*/unpacked/libdnnl.so.2' &&
  compgen -G 'root/tmp/lockstep-*/unpacked/libdnnl.so.2'
verdict $? 'a read-only bundle unpacks into a cache, or else into TMPDIR'

# Only the library itself is used from there, and only if no one else can write to the folder.
cached=$(compgen -G 'root/work/.cache/lockstep-*')
echo 'no library' >"$cached/unpacked/libdnnl.so.2"
inside HOME=/work /bundle/lockstep topo
says '^no CUDA device: ' && [[ $(wc -c <"$cached/unpacked/libdnnl.so.2") -gt 1000000 ]]
verdict $? 'a cached library with another checksum is unpacked again'
chmod 770 "$cached"
rm -rf root/tmp/lockstep-*
ln -s /work/elsewhere "root/tmp/$(basename "$cached")-root"
mkdir -p root/work/elsewhere && cp "$cached/unpacked/libdnnl.so.2" root/work/elsewhere/
inside HOME=/work USER=root TMPDIR=/tmp /bundle/lockstep topo
[[ $status != 0 ]] && says '^error: the libraries could not be unpacked'
verdict $? 'a cache folder that others can write to, or that is a link, is not used'
rm "root/tmp/$(basename "$cached")-root"

sed -i 's|; exec chroot|; mount -t tmpfs -o ro none root/tmp; exec chroot|' enter.sh
inside HOME=/bundle TMPDIR=/tmp /bundle/lockstep topo
[[ $status != 0 ]] && says '^error: the libraries could not be unpacked'
verdict $? 'a bundle that finds no place to unpack says so'
