#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::comm {

/// The ranks that keep others waiting.
struct Absence {
  std::vector<int> ranks;  ///< ascending; empty when every rank is present and on time
  std::string text;        ///< which ranks, in which step and phase, and for how long

  static void fields(auto& self, auto&& visit) { visit(self.ranks, self.text); }
};

/// Finds the ranks that keep this one waiting, after it has waited for `waited_s`. Does not ask
/// those ranks. Nothing when they are not known. Takes a second at most.
/// **Thread safety:** any thread may call it.
using FindAbsence = std::function<std::optional<Absence>(double waited_s)>;

}  // namespace lockstep::comm
