#!/bin/bash
# The choice of convolutions by Winograd's algorithm: measured once, kept with the run, given as a
# list, or refused where it would have no effect.
# computes
source "$(dirname "$0")/../../support/e2e.bash"
if ! grep -q avx512bw /proc/cpuinfo; then
  echo "SKIP the choice of convolutions: this processor has no AVX-512"
  exit 0
fi
pack_small

train() {
  run "$LOCKSTEP" train --data.train small/train --data.val small/val --epochs 1 --batch 50 \
    --threads 1 --stop-after 2 --out "$1" --winograd "${winograd:-auto}" "${@:2}"
}
chosen() { sed -n 's/^winograd = "\(.*\)"$/\1/p' "$1/${2:-decisions.toml}"; }
last() { tensors "$1/checkpoints/step-00000002.h5"; }

train first && says "convolutions by Winograd's algorithm .*: "
list=$(chosen first)
cache=.cache/lockstep/convolutions.json
[[ -s $cache && $list && $list != auto ]] && grep -qF "\"$list\"" $cache
verdict $? 'what is measured is kept for the next run, and saved with this one'

# Another choice than the measured one: only what is read from the file can bring it.
python3 - "$cache" <<'END'
import json, sys
known = json.load(open(sys.argv[1]))
json.dump({key: "32x32@4x4:f" for key in known}, open(sys.argv[1], "w"))
END
train second && [[ $(chosen second) == 32x32@4x4:f ]] && says 'Winograd 32x32@4x4:f'
verdict $? 'a second run takes what the first has measured'

winograd=32x32@4x4:f train listed && [[ $(last listed) == "$(last second)" ]]
verdict $? 'the same list gives the same bits'

echo 'no JSON' >$cache
run "$LOCKSTEP" train --data.train small/train --data.val small/val --epochs 1 --batch 50 \
  --threads 1 \
  --stop-after 3 --out second --winograd auto --resume auto
((status == 3)) && [[ $(chosen second) == 32x32@4x4:f ]] && ! says 'may differ'
verdict $? 'a resume keeps the choice of its run, whatever the machine would measure'

train sure --deterministic true && [[ $(chosen sure) == true ]]
verdict $? 'a deterministic run measures nothing'

winograd=false train none && winograd=false train again && ! says Winograd &&
  [[ $(last none) == "$(last again)" ]] &&
  [[ $(last none) != "$(last sure)" ]]
verdict $? 'without the algorithm the bits are others'

winograd=32x32@99x99:f train strange
((status == 2)) && [[ $(chosen first config.toml) == auto && ! -e strange ]] &&
  says 'no convolution of 3 x 3 from 32 to 32 channels on 99 x 99 here; --winograd auto'
verdict $? 'the configuration asks for no list, and a list of another network is an error'

winograd=32x32@4:f train wrong
((status == 2)) && says "winograd: '32x32@4:f' is not" && [[ ! -e wrong ]]
verdict $? 'a list with a mistake is an error that names it'
