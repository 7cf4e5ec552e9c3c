# bash completion for lockstep: commands, options and keys, choices, sections of help, file names.
# It asks the program that is being typed, so it knows what that program knows.

# _lockstep_help WORD...: what the program says of this command, without variables that make it one
# of several ranks, of which only one says so.
_lockstep_help() {
  env -i LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}" "$program" "$@" --help ${1:+all} \
    </dev/null 2>/dev/null
}

# _lockstep_commands HELP: the commands in it.
_lockstep_commands() { sed -n '/^Commands:$/,/^$/s/^  \([a-z]*\)  .*/\1/p' <<<"$1"; }

# _lockstep_among WORDS: offers those of the words that begin as what was typed.
_lockstep_among() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur"); }

# _lockstep_files -f|-d: offers files or folders; readline quotes them.
_lockstep_files() {
  local name
  while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen "$1" -- "$cur")
  compopt -o filenames 2>/dev/null || true  # nothing to set where no key was pressed
}

# _lockstep_value OPTION HELP: offers values of this option; false if it has none.
_lockstep_value() {
  local line kind option='^  (-[a-z], )?(--?[^ ]+)( ([^ ]+))?(  |$)'
  while IFS= read -r line; do
    [[ $line =~ $option ]] || continue
    [[ $1 == "${BASH_REMATCH[2]}" || $1, == "${BASH_REMATCH[1]% }" ]] || continue
    kind=${BASH_REMATCH[4]}
    case $kind in
      '')
        [[ $1 == --help ]] || return
        _lockstep_among "all $(sed -n 's/^\([a-z-]*\):$/\1/p' <<<"$2")"
        ;;
      FOLDER) _lockstep_files -d ;;
      FILE | TEXT) _lockstep_files -f ;;
      *'|'*) _lockstep_among "${kind//|/ }" ;;
      *)
        [[ $line != *'[one of '* ]] ||
          _lockstep_among "$(sed 's/.*\[one of \([^];]*\).*/\1/; s/,//g' <<<"$line")"
        [[ $line != *'[auto, or'* ]] || _lockstep_among auto
        ;;
    esac
    return 0
  done <<<"$2"
  return 1
}

_lockstep() {
  local program=$1 cur=$2 at=1 before=$((COMP_CWORD - 1)) help
  local -a path=()
  COMPREPLY=()
  [[ $program != '~/'* ]] || program=$HOME/${program#'~/'}
  program=$(type -P -- "$program") || return 0
  [[ ${COMP_WORDS[1]} != help || $COMP_CWORD == 1 ]] || at=2
  help=$(_lockstep_help)
  while ((at < COMP_CWORD)) && _lockstep_commands "$help" | grep -qxF -e "${COMP_WORDS[at]}"; do
    path+=("${COMP_WORDS[at]}")
    help=$(_lockstep_help "${path[@]}")
    ((++at))
  done

  # In --option=value, bash takes the = for a word.
  [[ $cur != = ]] || { cur='' && ((++before)); }
  [[ ${COMP_WORDS[before]} != = ]] || ((--before))
  _lockstep_value "${COMP_WORDS[before]}" "$help" && return 0
  if [[ $cur == -* ]]; then
    _lockstep_among "$(sed -n 's/^  \(-[a-z], \)\{0,1\}\(-[^ ]*\).*/\2/p' <<<"$help")"
    return 0
  fi
  ((at < COMP_CWORD)) || _lockstep_among "$(_lockstep_commands "$help")"
  [[ ! ${path[*]} ]] || _lockstep_files -f
}
complete -F _lockstep lockstep
