#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::comm {

/// The ranks for which others wait in vain.
struct Absence {
  std::vector<int> ranks;  ///< ascending; empty when every rank is there and none is late
  std::string text;        ///< which, where they were and for how long

  static void fields(auto& self, auto&& visit) { visit(self.ranks, self.text); }
};

/// Finds the ranks that keep one waiting that has waited for `waited_s`, without a word to them.
/// Nothing when that is not known. Takes a second at most.
/// **Thread safety:** any thread may call it.
using FindAbsence = std::function<std::optional<Absence>(double waited_s)>;

}  // namespace lockstep::comm
