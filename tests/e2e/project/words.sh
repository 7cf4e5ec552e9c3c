#!/bin/bash
# ci
# computes
# tests/check_words finds the listed words in prose, and nothing else; and the project does not use
# them.
repo=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
source "$repo/tests/support/e2e.bash"
words=$repo/tests/check_words

# finds WORD FILE LINE...: the word is found in a file of these lines, in the last one.
finds() {
  printf '%s\n' "${@:3}" >"$2"
  run "$words" "$2"
  ((status == 1)) && says ":$(($# - 2)): $1 -> " && says '^1 finding' && says '^FAIL the project'
}
# passes FILE LINE...: nothing is found in a file of these lines.
passes() {
  printf '%s\n' "${@:2}" >"$1"
  run "$words" "$1"
  [[ $status == 0 && $said == "PASS the project's words are plain" ]]
}

texts=('it ends behind step 3' 'the note beside it' 'it stands there' 'it goes on' \
    'begun anew' \
  'an undisturbed run' 'whoever asks' 'nobody asks' 'so many rows' 'a file of its own' \
  'it goes before' \
  'it is refused' 'a key that is none' 'as far as here' 'what is at hand' 'it works by itself')
for i in "${!texts[@]}"; do echo "# ${texts[i]}" >planted$i.sh; done
run "$words" planted*.sh
planted_status=$status
says "^${#texts[@]} finding"
verdict $? 'each of several files has one finding'
for i in "${!texts[@]}"; do
  ((planted_status == 1)) && says "^.*planted$i.sh:1: .* -> "
  verdict $? "found and given a better word: ${texts[i]}"
done

finds behind page.md '# A page' '' 'What comes behind it.' &&
  finds 'goes on' page.md '```sh' 'sleep 1  # then it goes on' && finds anew page.md \
    '- an item, anew'
verdict $? 'words are found in pages'
finds behind a.cpp 'int behind = 0;' '/// What is behind.' && finds anew a.hpp '// One.' \
  'f("made anew");' &&
  finds Nobody a.cu 'g(R"(x' 'Nobody)");' && finds speaker a.cpp 'bool speaker();'
verdict $? 'words are found in comments and literals of C++, and names in its code'
finds beside Makefile 'all:' '	@echo beside' && finds anew a.toml 'x = 1  # anew'
verdict $? 'words are found in recipes and configurations'
printf '%s\n' '// A sentence that goes' '// on in the next line.' >a.cpp
run "$words" a.cpp
((status == 1)) && says 'a.cpp:1: goes on -> '
verdict $? 'a phrase that crosses the end of a line is found'

passes a.cpp '#include "behind.hpp"' 'int behind = so(many);' \
  "char c = '\"'; int beside = 1'000;  // fine" &&
  passes page.md '```text' 'error: stands behind' '```' '' '    nobody goes on' &&
  passes a.sh '# what a dead start left behind; 0 stands for none; where there is none; besides' &&
  passes b.sh 'x=1  # the row behind  plain: behind'
verdict $? 'code, shown output, right uses and allowed lines pass'

"$words"
