#include "lockstep/base/text/words.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <memory>
#include <string>

using namespace lockstep;

namespace {

/// What a shell makes of a word.
std::string said_by_shell(const std::string& word) {
  const std::string command = "printf %s " + word;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(popen(command.c_str(), "r"), pclose);
  std::array<char, 256> text{};
  const std::size_t count = std::fread(text.data(), 1, text.size(), answer.get());
  return {text.data(), count};
}

}  // namespace

TEST_CASE("a text without blanks at its ends keeps those inside", "[text]") {
  CHECK(trimmed(" \t a b\r\n") == "a b");
  CHECK(trimmed("a") == "a");
  CHECK(trimmed(" \n ").empty());
  CHECK(trimmed(" a\n", " ") == "a\n");
}

TEST_CASE("a shell reads a word as the text that it stands for", "[text]") {
  for (const char* text : {"plain-1.0/x=2", "", "two words", "it's", "''", "$HOME", "a\nb", "\\",
                           "\"quoted\"", "*", "käse", "a;b"}) {
    INFO(text);
    CHECK(said_by_shell(shell_word(text)) == text);
  }
  CHECK(shell_word("plain-1.0/x=2") == "plain-1.0/x=2");
}
