#!/bin/bash
# computes
# What a newcomer types first: help, misspelt commands and options, a folder that pack wrote, a dry
# run, a training watched on a terminal, resume and eval with nothing but the run's folder.
# seconds: 300
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"

refused() {  # refused LAW PATTERN COMMAND...: one line with the pattern, status 2
  run timeout 20 "$LOCKSTEP" "${@:3}"
  ((status == 2)) && says "^error: .*$2" && (($(wc -l <<<"$said") == 1))
  verdict $? "$1"
}
refused 'a misspelt command is named, with a similar one' \
  "no command 'trian'; did you mean 'train'" trian --epochs 3
refused 'so is one of bench' "bench has no command 'dta'; did you mean 'data'" bench dta
refused 'a misspelt option of another command is named, with a similar one' \
  "lockstep eval has no option --jsn; did you mean '--json'" eval x.h5 --jsn out.json
refused 'of words that were not expected, the first is named' "'b' was not expected" info a b c
refused 'bench calls options as train does' 'photos: ' bench data photos --data.workers 2 \
  --data.slots 3
run "$LOCKSTEP" bench train --model ResNet18
((status == 2)) && says 'model: .ResNet18. is not known; did you mean .resnet18'
verdict $? 'a model in other letters is suggested'
run "$LOCKSTEP" help eval
((status == 0)) && says 'Usage: lockstep eval' && run "$LOCKSTEP" help && says 'Usage: lockstep' &&
  run "$LOCKSTEP" version && says '^lockstep [0-9.]+ \(build [0-9a-f]+, (x86-64|neon)\)$'
verdict $? 'help and version are commands'

python3 "$repo/tests/support/flowers.py" flowers 30
run "$LOCKSTEP" pack flowers --out packed --resize 32
((status == 0)) && run "$LOCKSTEP" info packed && says '^data set packed/train: 81 rows' &&
  says '^data set packed/val: 9 rows'
verdict $? 'info of a packed folder describes both sets'

train=(train --model resnet20 --batch 16 --epochs 2 --data.train packed --out run)
run ranks 2 "$LOCKSTEP" "${train[@]}" --dry-run
((status == 0)) && says '^expected time: .* for 10 steps of .* ms and 2 validations' &&
  says "memory of a rank's step" && says 'peak memory' && [[ ! -e run ]]
verdict $? 'a dry run says time and memory, and writes nothing'

# A terminal of 70 columns, which the program writes to with stdout and stderr.
cat >terminal.py <<'END'
import fcntl, os, pty, struct, sys, termios
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 70, 0, 0))
while True:
    try:
        text = os.read(terminal, 65536)
    except OSError:
        break
    os.write(1, text)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
END
TERM=xterm NO_COLOR= run python3 terminal.py "$LOCKSTEP" "${train[@]}" --stop-after 4
said=$(tr '\r' '\n' <<<"$said")
((status == 3)) && says 'epoch 1/2 \[.\[32m=*>.\[0m *\] +80 %' &&
  (($(sed 's/\x1b\[[?0-9;]*[a-zA-Z]//g' <<<"$said" | grep '^epoch 1/2 \[' |
    awk 'length > 69' | wc -l) == 0)) &&
  says '^training on 81 rows .* validating on 9$' && ! says 'audit.every-steps'
verdict $? \
  'a terminal gets a bar that fits it, and the start says only what differs from the defaults'

run ranks 2 "$LOCKSTEP" resume run
((status == 0)) && says 'resuming from run/checkpoints/step-00000004.h5' && says '^done: 2 epoch'
verdict $? 'resume needs only the folder of the run'
here=$PWD
mkdir elsewhere && cd elsewhere || exit 1
sought="is not there, seen from this folder; the run was started in $here: go there"
refused 'resume from another folder says where the data was' \
  "packed: $sought, .* --data.train" resume ../run
refused 'so does eval' "packed/val: $sought, .* --data" eval ../run
run "$LOCKSTEP" resume ../run --data.train ../packed
((status == 0)) && says '^nothing left to do'
verdict $? 'resume from another folder takes data that is named'
cd ..
refused 'resume of another folder is an error that says so' \
  'flowers: is not the folder of a run' resume flowers

run "$LOCKSTEP" eval run
((status == 0)) && says '^evaluating run/checkpoints/best.h5 on packed/val$' &&
  says '^9 rows: loss' &&
  run "$LOCKSTEP" info run && says '^checkpoints: .* best.h5$' &&
  says '^configuration: .*batch = 16'
verdict $? "eval of a run takes its best checkpoint and its validation set"

export OMPI_MCA_pml=none-such  # MPI cannot start with it
run "$LOCKSTEP" train --data.train packed --batch 16 --stop-after 1 --out alone
((status == 3)) && run ranks 1 "$LOCKSTEP" train --data.train packed --batch 16 --out launched &&
  ((status != 0)) && [[ ! -e launched/checkpoints ]]
verdict $? 'a process that no launcher started starts no MPI'
