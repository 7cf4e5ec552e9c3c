#include "cluster/lint/batch_script.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

namespace lockstep::cluster {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view script) : script_(script) {}

  std::vector<ShellCommand> read() {
    while (at_ < script_.size()) step();
    end_command("");
    return std::move(commands_);
  }

 private:
  char now() const { return script_[at_]; }
  bool next_is(char c) const { return at_ + 1 < script_.size() && script_[at_ + 1] == c; }

  void step() {
    const char c = now();
    if (c == '\\') return skip_blank_end(), escape();
    if (c == '\'') return quote();
    if (c == '"') return double_quote();
    if (c == '$' && (next_is('(') || next_is('{'))) return substitution();
    if (c == '#' && !word_) return skip_line();
    if (c == '<' && next_is('<')) return here_document();
    if (c == '\n') return end_line();
    if (c == ' ' || c == '\t' || c == '\r') {
      end_word();
      ++at_;
      return;
    }
    const bool redirects =
        c == '&' && (next_is('>') || (word_ && (word_->ends_with('>') || word_->ends_with('<'))));
    if (!redirects && std::string_view(";&|()").find(c) != std::string_view::npos)
      return separator();
    take();
  }

  /// The character becomes part of the word.
  void take() {
    if (!word_) word_.emplace();
    if (command_.words.empty() && word_->empty()) command_.line = line_;
    if (now() == '\n') ++line_;
    *word_ += now();
    ++at_;
  }

  void escape() {
    ++at_;
    if (at_ == script_.size()) return;
    if (now() != '\n') return take();
    ++line_;
    ++at_;
  }

  /// REQUIRES: a backslash is here.
  void skip_blank_end() {
    const std::size_t end = script_.find_first_not_of(" \t", at_ + 1);
    if (end == at_ + 1 || end == script_.npos || script_[end] != '\n') return;
    command_.blank_ends.push_back(line_);
    at_ = end - 1;  // escape() takes what is here for the backslash
  }

  void begin_quoted() {
    if (!word_) word_.emplace();
    if (command_.words.empty() && word_->empty()) command_.line = line_;
    ++at_;
  }

  void quote() {
    begin_quoted();
    while (at_ < script_.size() && now() != '\'') take();
    ++at_;
  }

  void double_quote() {
    begin_quoted();
    while (at_ < script_.size() && now() != '"') {
      if (now() == '\\')
        escape();
      else if (now() == '$' && (next_is('(') || next_is('{')))
        substitution();
      else
        take();
    }
    ++at_;
  }

  /// $(...) and ${...}, as they are written.
  void substitution() {
    take();
    const char open = now(), close = open == '(' ? ')' : '}';
    int depth = 0;
    do {
      const char c = now();
      if (c == open) ++depth;
      if (c == close) --depth;
      take();
      if (c != '"' && c != '\'') continue;
      while (at_ < script_.size() && now() != c) take();
      if (at_ < script_.size()) take();
    } while (at_ < script_.size() && depth > 0);
  }

  void here_document() {
    const bool text_follows = at_ + 2 < script_.size() && script_[at_ + 2] == '<';  // <<<
    at_ += text_follows ? 3 : 2;
    if (text_follows) return;
    while (at_ < script_.size() && (now() == '-' || now() == ' ')) ++at_;
    std::string mark;
    bool quoted = false;
    for (; at_ < script_.size() && std::isspace(static_cast<unsigned char>(now())) == 0; ++at_)
      if (now() != '\'' && now() != '"' && now() != '\\')
        mark += now();
      else
        quoted = true;
    // In arithmetic a number follows <<.
    if (!mark.empty() && std::isdigit(static_cast<unsigned char>(mark[0])) == 0)
      here_marks_.push_back({mark, quoted});
  }

  void separator() {
    std::string end(1, now());
    if ((now() == '&' || now() == '|') && next_is(now())) end += now();
    at_ += end.size();
    end_command(end);
  }

  void end_line() {
    end_command("\n");
    ++at_;
    ++line_;
    for (const HereMark& mark : here_marks_) {
      HereDocument document{line_, "", mark.quoted};
      while (at_ < script_.size()) {
        const std::string_view line = skipped_line();
        if (line == mark.text) break;
        document.text.append(line).push_back('\n');
      }
      if (!commands_.empty()) commands_.back().documents.push_back(std::move(document));
    }
    here_marks_.clear();
  }

  /// A line of a here-document, without the tabs that <<- allows.
  std::string_view skipped_line() {
    std::string_view text = script_.substr(at_, script_.find('\n', at_) - at_);
    at_ = std::min(at_ + text.size() + 1, script_.size());
    ++line_;
    text.remove_prefix(std::min(text.find_first_not_of('\t'), text.size()));
    return text;
  }

  void skip_line() { at_ = std::min(script_.find('\n', at_), script_.size()); }

  void end_word() {
    if (word_) command_.words.push_back(*word_);
    word_.reset();
  }

  void end_command(const std::string& end) {
    end_word();
    command_.end = end;
    if (!command_.words.empty()) commands_.push_back(command_);
    command_ = {};
  }

  std::string_view script_;
  std::size_t at_ = 0, line_ = 1;
  std::optional<std::string> word_;  ///< that is being read; an empty one was quoted
  ShellCommand command_;
  std::vector<ShellCommand> commands_;
  struct HereMark {
    std::string text;
    bool quoted = false;
  };
  std::vector<HereMark> here_marks_;
};

bool is_assignment(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '+';
  });
}

}  // namespace

std::vector<ShellCommand> shell_commands(std::string_view script) { return Reader(script).read(); }

std::size_t program_in(const std::vector<std::string>& words) {
  static constexpr std::array<std::string_view, 17> before = {
      "if", "then", "else", "elif",  "while", "until",   "do",   "{",      "!",
      "}",  "exec", "time", "nohup", "env",   "command", "eval", "timeout"};
  std::size_t at = 0;
  bool timed = false;
  for (; at < words.size(); ++at) {
    const std::string& word = words[at];
    const bool duration =
        timed && (word.starts_with('-') ||
                  (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) != 0));
    if (word == "timeout") timed = true;
    if (!duration && !is_assignment(word) &&
        std::find(before.begin(), before.end(), word) == before.end())
      break;
  }
  return at;
}

}  // namespace lockstep::cluster
