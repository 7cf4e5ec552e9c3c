#include <glob.h>

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/pack/source/source.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_names = 1'000'000;

/// "000..063" as 64 numbers with that many digits; empty when it is not a range.
std::vector<std::string> numbers_in(std::string_view range) {
  const std::size_t dots = range.find("..");
  if (dots == range.npos) return {};
  const auto first = whole_number<std::size_t>(range.substr(0, dots)),
             last = whole_number<std::size_t>(range.substr(dots + 2));
  if (!first || !last || *last < *first || *last - *first >= most_names) return {};
  std::vector<std::string> numbers;
  for (std::size_t n = *first; n <= *last; ++n) numbers.push_back(fmt::format("{:0{}}", n, dots));
  return numbers;
}

std::vector<std::string> choices_in(std::string_view text) {
  std::vector<std::string> choices = numbers_in(text);
  if (!choices.empty() || text.find(',') == text.npos) return choices;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    choices.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

/// Expands braces as a shell does; they cannot be nested.
void expand_braces(const std::string& name, std::size_t from, std::vector<std::string>& names) {
  const std::size_t open = name.find('{', from),
                    close = name.find('}', std::min(open, name.size()));
  if (close == name.npos) return names.push_back(name);
  const std::vector<std::string> choices =
      choices_in(std::string_view(name).substr(open + 1, close - open - 1));
  if (choices.empty()) return expand_braces(name, close + 1, names);
  for (const std::string& choice : choices) {
    expand_braces(name.substr(0, open) + choice + name.substr(close + 1), open + choice.size(),
                  names);
    require(names.size() <= most_names, fmt::format("{}: stands for too many files", name));
  }
}

void expand_wildcards(const std::string& name, std::vector<fs::path>& files) {
  std::error_code ignored;
  if (name.find_first_of("*?[") == name.npos || fs::exists(name, ignored))
    return files.emplace_back(name), void();
  struct Found {
    glob_t all{};
    ~Found() { ::globfree(&all); }
  } found;
  const int result = ::glob(name.c_str(), GLOB_ERR, nullptr, &found.all);
  require(result == 0, fmt::format("{}: {}", name,
                                   result == GLOB_NOMATCH ? "no file has such a name"
                                                          : "its folder cannot be listed"));
  files.insert(files.end(), found.all.gl_pathv, found.all.gl_pathv + found.all.gl_pathc);
}

}  // namespace

std::vector<fs::path> expand_patterns(const std::vector<std::string>& names) {
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    std::vector<std::string> expanded;
    expand_braces(name, 0, expanded);
    for (const std::string& pattern : expanded) expand_wildcards(pattern, files);
  }
  std::vector<fs::path> sorted = files;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) throw InputError(fmt::format("{}: is named twice", twice->string()));
  return files;
}

}  // namespace lockstep::pack
