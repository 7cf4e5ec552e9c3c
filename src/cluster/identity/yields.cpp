#include "lockstep/cluster/identity/yields.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>

namespace lockstep::cluster {
namespace {

/// Open MPI's rule: 0 and these words are false.
bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::array<std::string_view, 7> no{"", "0", "f", "n", "false", "no", "disabled"};
  return std::find(no.begin(), no.end(), value) == no.end();
}

}  // namespace

std::string describe_endless_yields(const EnvLookup& env) {
  constexpr std::string_view asked = "OMPI_MCA_mpi_yield_when_idle";
  constexpr std::string_view implied = "OMPI_MCA_mpi_oversubscribe";
  const std::string_view name = env(asked) ? asked : implied;
  const std::optional<std::string> value = env(name);
  if (!value || !is_true(*value)) return "";
  return fmt::format(
      "{}={} makes Open MPI's ranks yield the core without end while they wait{}; on some kernels "
      "(Linux 6.18) all else on the node then stops for many seconds. lockstep switches that off "
      "for its ranks, which nap while they wait",
      name, *value,
      name == implied ? " (mpirun sets it where it starts more ranks than cores)" : "");
}

}  // namespace lockstep::cluster
