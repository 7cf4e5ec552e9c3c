#!/bin/bash
# computes
# README.md is true: each command in its ```sh blocks runs as written, on a small data set; the
# program prints the expected output; the links lead somewhere. Not run as written:
#   make train    runs with a smaller data set and one epoch, and does not build the program again
#   make test     would run itself: its recipe is checked, and one part of tests/run is run
#   srun, sbatch  need a cluster: tests/cluster/readme.sh runs them
# A command that no case below handles is a failure.
# seconds: 600
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
pages() { python3 "$repo/tests/support/pages.py" "$@"; }
fresh_make() { env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make --no-print-directory -C "$repo" "$@"; }

# shape: its input without numbers and times that differ from run to run; lines end where README.md
# cuts them.
shape() {
  sed -E 's/ ?\.\.\.$//; s#[^ ]*(runs/)#\1#; s/[0-9]+(:[0-9]+)+|[0-9.]+ s\b/TIME/g
    s/[0-9]+(\.[0-9]+)?/N/g; s/\bepochs\b/epoch/g'
}
# begins_with PROMISED PRINTED: each line of the second file begins with the same line of the first.
begins_with() {
  local promised printed
  [[ -s $1 && $(wc -l <"$1") == $(wc -l <"$2") ]] || return 1
  while IFS= read -r promised <&3 && IFS= read -r printed <&4; do
    [[ $printed == "$promised"* ]] && continue
    said="README.md has: $promised"$'\n'"printed is:    $printed"
    return 1
  done 3<"$1" 4<"$2"
}

ln -s "$repo/jobs" jobs
mkdir -p build && ln -s "$LOCKSTEP" build/lockstep
python3 "$repo/tests/support/flowers.py" flowers 25

make_train() {  # the Makefile's recipe, with the program under test
  sed "s/^epochs = .*/epochs = 1/; s#data/shapes#$WORK/shapes#; s#runs/#$WORK/runs/#" \
    "$repo/jobs/configs/shapes.toml" >short.toml
  local pack="$LOCKSTEP pack --from shapes --out $WORK/shapes --train-rows 512 --val-rows 128"
  run fresh_make train MAKE=true PROGRAM="$LOCKSTEP" CONFIG="$WORK/short.toml" \
    SHAPES="$WORK/shapes" MAKE_SHAPES="$pack"
  ((status == 0)) || return
  tail -n 5 <<<"$said" | shape >printed
  pages output "$repo/README.md" | grep -A 4 '^epoch ' | shape >promised
  begins_with promised printed
}

make_test() {
  run fresh_make -n test MAKE=true
  ((status == 0)) && says 'jobs/setup.sh test' && says '^BUILD=.* tests/run$' || return 1
  run env BUILD="$WORK/other" FILTER= "$repo/tests/run" layers
  said=$(sed 's/^/tests\/run: /' <<<"$said")  # so that it is not read as a verdict of this script
  ((status == 0)) && tail -n 1 <<<"$said" | grep -Eq '^tests/run: [1-9][0-9]* passed, 0 failed$'
}

as_written() {
  run bash -c "$1"
  ((status == 0))
}

train_and_stop() {  # it stops after the first steps, so that there is something to resume
  eval "exec $1" >train.log 2>&1 &
  mpirun=$!
  first_step train.log
  kill -USR1 $mpirun
  finish train
  ((status == 3)) && says '; --resume auto continues from'
}

mapfile -t commands < <(pages commands "$repo/README.md")
((${#commands[@]} > 4))
verdict $? 'README.md has commands'
for command in "${commands[@]}"; do
  case $command in
    'make train') make_train ;;
    'make test') make_test ;;
    'mpirun '*' pack '*) as_written "$command" && says 'packed 75 images of 3 classes' ;;
    'mpirun '*' resume '*)
      as_written "$command" && says '/checkpoints/step-' && says '^done: 10 epoch'
      ;;
    'mpirun '*' train '*) train_and_stop "$command" ;;
    'mpirun '*' eval '*) as_written "$command" && says 'top-1' ;;
    'build/lockstep predict '*)
      as_written "$command" && says 'rows in .*: top-1' && [[ -s predictions/predictions.csv ]]
      ;;
    'srun '* | 'sbatch '*) continue ;;  # tests/cluster/readme.sh
    *) said='no case of tests/e2e/project/readme.sh runs it' && false ;;
  esac
  verdict $? "README.md's command works: $command"
done

# Commands in running text and on the other pages at least exist.
missing() { said+="$page: $1"$'\n'; }
known() {  # known NAME OPTION...: lockstep has this command with these options
  local help option
  help=$("$LOCKSTEP" $1 --help all 2>&1)
  [[ $help == *"Usage: lockstep $1"* ]] || missing "lockstep $1: no such command"
  for option in "${@:2}"; do
    grep -Eq -- "(^|[ ,])${option%%=*}([ ,=]|$)" <<<"$help" ||
      missing "lockstep $1 knows no $option"
  done
}
said=''
mapfile -t all < \
  <(cd "$repo" && find README.md jobs data/*.md src tests -name '*.md')
for page in "${all[@]}"; do
  for target in $(grep -oE '`make [a-z0-9-]+' "$repo/$page" | cut -d' ' -f2 | sort -u); do
    grep -q "^$target:" "$repo/Makefile" || missing "make $target: no such target"
  done
  while IFS= read -r command; do
    [[ $command =~ (lockstep|jobs/[a-z-]+\.sbatch)\ (.*) ]] || continue
    words=(${BASH_REMATCH[2]})
    case ${BASH_REMATCH[1]} in
      jobs/predict.sbatch) words=(predict "${words[@]}") ;;
      jobs/serve.sbatch) words=(serve "${words[@]}") ;;
      jobs/search.sbatch) words=(search run "${words[@]}") ;;
      jobs/*) words=(train "${words[@]}") ;;
    esac
    [[ ${words[0]} != bench ]] || words=("bench ${words[1]}" "${words[@]:2}")
    [[ "${words[*]:0:2}" != @(scaling\ @(plan|run|fit|predict|report)|search\ *) ]] ||
      words=("${words[0]} ${words[1]}" "${words[@]:2}")
    mapfile -t options < <(printf '%s\n' "${words[@]:1}" | grep -E '^--')
    known "${words[0]}" "${options[@]}"
  done < <(pages commands "$repo/$page")
done
[[ ! $said ]]
verdict $? "every page's commands name targets, commands and options that exist"

run pages check "$repo" "${all[@]/#/$repo/}"
verdict $status "the pages' links lead somewhere, and their prose fits into 100 columns"

lines=$(wc -l <"$repo/README.md") characters=$(LC_ALL=C.UTF-8 wc -m <"$repo/README.md")
said="README.md has $lines lines and $characters characters"
((lines <= 130 && characters <= 8000))
verdict $? 'README.md is one page: at most 130 lines and 8,000 characters'
