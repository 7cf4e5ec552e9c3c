#!/bin/sh
# Writes the manual page of a lockstep program, made of what its --help says, to standard output:
#
#   jobs/install/man_page.sh build/lockstep >lockstep.1
#
# Sections of keys that are the same in several commands are there once, after the commands.
set -eu
program=$1
# Without variables that make it one of several ranks, of which only one prints.
ask() { env -i LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" "$program" "$@" </dev/null; }

# say WORD...: the whole help of this command and of those below it, each after a line that names
# it.
say() {
  echo "@ $*"
  help=$(ask "$@" --help ${1:+all}) && [ -n "$help" ] || return
  printf '%s\n' "$help"
  for word in $(printf '%s\n' "$help" | sed -n '/^Commands:$/,/^$/s/^  \([a-z]*\)  .*/\1/p'); do
    (say "$@" "$word") || return
  done
}
version=$(ask --version) || exit
all=$(say) || exit
if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
  day=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)
else
  day=$(date -u -r "$program" +%Y-%m-%d)
fi

printf '%s\n' "$all" | LC_ALL=C awk -v version="${version%% (*}" -v day="$day" '
  function plain(text) {  # what roff would not print as it is
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    gsub("\047", "\\(aq", text)
    gsub(/`/, "\\(ga", text)
    gsub(/~/, "\\(ti", text)
    gsub(/\^/, "\\(ha", text)
    return text
  }
  function bold(text) { return "\\fB" plain(text) "\\fR" }
  function italic(text) { return "\\fI" plain(text) "\\fR" }
  function folded(text,    words, n, i, line, out) {
    n = split(plain(text), words, " ")
    for (i = 1; i <= n; ++i) {
      if (line != "" && length(line words[i]) > 78) {
        out = out line "\n"
        line = ""
      }
      line = line (line == "" ? (words[i] ~ /^\./ ? "\\&" : "") : " ") words[i]
    }
    return out line "\n"
  }
  # A name in a line of help: of an option, of its value, of a command or of an argument.
  function styled(word, of_option) {
    if (word ~ /^-/) return bold(word)
    if (of_option) return word ~ /^[A-Z]/ ? italic(word) : plain(word)
    return commands ? bold(name == "" ? word : name " " word) : italic(word)
  }
  # a line of help: what is described, and how
  function item(text,    at, head, names, n, i, out) {
    at = match(substr(text, 3), /  +/)
    head = substr(text, 3, at ? at - 1 : length(text))
    n = split(head, names, " ")
    for (i = 1; i <= n; ++i) out = out (i > 1 ? " " : "") styled(names[i], head ~ /^-/)
    return ".TP\n" out "\n" (at ? folded(substr(text, 2 + at + RLENGTH)) : "")
  }
  # Ends a section of keys: printed at this place, unless train has the same.
  function end_section() {
    if (section == "") return
    if (name == "train") {
      keys[section] = block
      order[++sections] = section
    }
    if (block == keys[section]) {
      shared = shared (shared == "" ? "" : ", ") section
    } else {
      body = body ".PP\n" bold(section ":") "\n" block
    }
    section = block = ""
  }
  function end_command() {
    end_section()
    if (shared != "")
      body = body ".PP\nIt also takes these keys of a training (see below):\n" folded(shared ".")
    shared = ""
  }
  /^@/ {
    end_command()
    name = substr($0, 3)
    line = commands = skip = 0
    if (name != "") body = body ".SS " bold("lockstep " name) "\n"
    next
  }
  { ++line }
  name == "" && line == 1 { about = $0 }
  name == "" && /^Exit status: / { ending = 1; sub(/^Exit status: /, "") }
  /^Exit status: / { skip = 1 }
  /^lockstep help COMMAND / { ending = 0; next }
  ending { exits = exits $0 " " }
  ending || skip || $0 == "" || $0 == "Options:" { next }
  /^Usage: / {
    text = $0
    sub(/^Usage: lockstep ?/, "", text)
    if (name == "") usage = text
    else {
      sub("^" name " ?", "", text)
      body = body ".PP\n" bold("lockstep " name) " " italic(text) "\n"
    }
    next
  }
  name != "" && line == 1 { body = body folded($0); next }
  $0 == "Commands:" { commands = 1; next }
  /^[a-z-]+:$/ { end_section(); section = substr($0, 1, length($0) - 1); next }
  /^  / {
    if (section != "") block = block item($0)
    else if (name != "") body = body item($0)
    else first[commands] = first[commands] item($0)
    next
  }
  name != "" { end_section(); body = body ".PP\n" folded($0) }
  END {
    end_command()
    printf ".TH LOCKSTEP 1 \"%s\" \"%s\" \"User Commands\"\n", day, version
    printf ".SH NAME\nlockstep \\- %s", folded(tolower(substr(about, 1, 1)) substr(about, 2))
    printf ".SH SYNOPSIS\n%s %s\n", bold("lockstep"), italic(usage)
    printf ".SH DESCRIPTION\n%sAs the program says by\n%s.\n", folded(about), bold("--help")
    printf ".SH OPTIONS\n%s.SH COMMANDS\n%s", first[0], first[1]
    printf ".SH OPTIONS OF COMMANDS\n%s", body
    printf ".SH KEYS OF A TRAINING\nEach is also a key of TOML files:\n%s.\n", bold("--config")
    for (i = 1; i <= sections; ++i)
      printf ".SS %s\n%s", bold(order[i]), keys[order[i]]
    printf ".SH EXIT STATUS\n%s", folded(exits)
  }'
