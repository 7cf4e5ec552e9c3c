#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/utf8.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::pack {

inline constexpr double round_s = 0.1;  ///< between two exchanges with the other ranks

/// Why a rank could not do its part.
struct Failure {
  bool input = false;  ///< the input was at fault
  std::string text;
  static void fields(auto& self, auto&& visit) { visit(self.input, self.text); }
};

/// Runs `work` on every rank. If it fails on any, all throw the same error, that of the lowest
/// failing rank, on one line: it may have a name of the input in it. So no rank waits for one that
/// is gone, and all can tidy up.
template <class Work>
void together(comm::Control& control, std::string_view phase, Work work) {
  std::optional<Failure> failure;
  try {
    work();
  } catch (const InputError& error) {
    failure = {true, one_line(error.what())};
  } catch (const std::exception& error) {
    failure = {false, one_line(error.what())};
  }
  const std::string none = comm::write_record(std::optional<Failure>());
  const auto first = [&none](const std::vector<std::string>& all) {
    return *std::find_if(all.begin(), all.end() - 1, [&](auto& one) { return one != none; });
  };
  const auto found = comm::read_record<std::optional<Failure>>(
      control.combine(comm::write_record(failure), phase, first));
  if (found && found->input) throw InputError(found->text);
  if (found) throw Error(found->text);
}

}  // namespace lockstep::pack
