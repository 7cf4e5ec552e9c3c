// Why the choice of convolutions travels with a run. It is measured, so two measurements may
// differ, and with them the bits. All ranks take rank 0's; a list in the checkpoint and in the
// backend's description says which.
#include "lockstep/backend/winograd.hpp"

#include <fmt/format.h>

#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::backend {

namespace {

/// Reads the number that begins at `at`, up to the character `end`, and moves past it.
std::size_t take_number(const std::string& entry, std::size_t& at, char end) {
  const std::size_t stop = entry.find(end, at);
  if (stop == std::string::npos) return 0;
  const auto number = whole_number<std::size_t>(entry.substr(at, stop - at));
  at = stop + 1;
  return number.value_or(0);
}

bool take_passes(const std::string& letters, WinogradPasses& passes) {
  for (const char letter : letters) {
    bool* pass = letter == 'f'   ? &passes.forward
                 : letter == 'd' ? &passes.data_gradient
                 : letter == 'w' ? &passes.weight_gradient
                                 : nullptr;
    if (!pass || *pass) return false;
    *pass = true;
  }
  return passes.any();
}

std::string to_string(const WinogradShape& shape, const WinogradPasses& passes) {
  return fmt::format("{}x{}@{}x{}:{}{}{}", shape.in, shape.out, shape.height, shape.width,
                     passes.forward ? "f" : "", passes.data_gradient ? "d" : "",
                     passes.weight_gradient ? "w" : "");
}

}  // namespace

WinogradPasses Winograd::passes(const WinogradShape& shape) const {
  if (mode == Mode::never) return {};
  if (mode != Mode::listed) return {true, true, true};
  const auto found = list.find(shape);
  return found == list.end() ? WinogradPasses{} : found->second;
}

Winograd parse_winograd(const std::string& text, const std::string& key) {
  if (text == "false") return {};
  if (text == "true") return {Winograd::Mode::everywhere, {}};
  if (text == "auto") return {Winograd::Mode::automatic, {}};
  Winograd result{Winograd::Mode::listed, {}};
  for (const std::string& entry : listed(text)) {
    std::size_t at = 0;
    WinogradShape shape;
    shape.in = take_number(entry, at, 'x');
    shape.out = take_number(entry, at, '@');
    shape.height = take_number(entry, at, 'x');
    shape.width = take_number(entry, at, ':');
    WinogradPasses passes;
    const bool sound = shape.in > 0 && shape.out > 0 && shape.height > 0 && shape.width > 0 &&
                       take_passes(entry.substr(at), passes);
    require(sound && result.list.emplace(shape, passes).second,
            fmt::format("{}: '{}' is not true, false, auto or a shape and its passes, each once, "
                        "like 64x64@56x56:fdw",
                        key, entry));
  }
  require(!result.list.empty(),
          key + " is empty: give true, false, auto or a list like 64x64@56x56:fdw");
  return result;
}

std::string to_string(const Winograd& winograd) {
  if (winograd.mode == Winograd::Mode::everywhere) return "true";
  if (winograd.mode == Winograd::Mode::automatic) return "auto";
  std::vector<std::string> entries;
  for (const auto& [shape, passes] : winograd.list) entries.push_back(to_string(shape, passes));
  return entries.empty() ? "false" : join(entries, ",");
}

}  // namespace lockstep::backend
