#include "lockstep/comm/control.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::comm {
namespace {

template <class Value>
std::string as_bytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

/// Each text once: ranks of one node, or all of them, often say the same.
struct DistinctParts {
  std::vector<std::string> texts;
  std::vector<std::uint32_t> which{};  ///< by rank; empty when all differ, or none

  static void fields(auto& self, auto&& visit) { visit(self.texts, self.which); }
};

DistinctParts distinct(const std::vector<std::string>& parts) {
  DistinctParts made;
  std::unordered_map<std::string_view, std::uint32_t> known;
  for (const std::string& part : parts) {
    const auto next = static_cast<std::uint32_t>(made.texts.size());
    const auto [found, is_new] = known.try_emplace(part, next);
    if (is_new) made.texts.push_back(part);
    made.which.push_back(found->second);
  }
  if (made.texts.size() == parts.size() || made.texts.size() == 1) made.which.clear();
  return made;
}

std::vector<double> as_doubles(std::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

void Control::barrier(std::string_view phase) {
  combine("", phase, [](const Parts&) { return std::string(); });
}

std::vector<std::string> Control::gather(const std::string& mine, std::string_view phase) {
  auto all = read_record<DistinctParts>(
      combine(mine, phase, [](const Parts& parts) { return write_record(distinct(parts)); }));
  if (all.texts.size() == 1) all.texts.resize(static_cast<std::size_t>(world()), all.texts[0]);
  if (all.which.empty()) return all.texts;
  std::vector<std::string> parts;
  for (const std::uint32_t index : all.which) parts.push_back(all.texts.at(index));
  return parts;
}

std::string Control::combine(const std::string& mine, std::string_view phase,
                             const Combine& combine) {
  const Waiting waiting(activity);
  return meet(mine, phase, combine);
}

std::string Control::broadcast(const std::string& from_root, std::string_view phase) {
  return combine(rank() == 0 ? from_root : "", phase, [](const Parts& parts) { return parts[0]; });
}

std::vector<std::string> Control::gather_at_root(const std::string& mine, std::string_view phase) {
  std::vector<std::string> all;
  combine(mine, phase, [&all](const Parts& by_rank) {
    all = by_rank;
    return std::string();
  });
  if (rank() != 0) all.clear();
  return all;
}

std::vector<double> Control::sum(const std::vector<double>& values, std::string_view phase) {
  return fold(values, phase, [](double a, double b) { return a + b; });
}

std::vector<double> Control::max(const std::vector<double>& values, std::string_view phase) {
  return fold(values, phase, [](double a, double b) { return a > b || a != a ? a : b; });
}

std::vector<double> Control::fold(const std::vector<double>& values, std::string_view phase,
                                  const std::function<double(double, double)>& operation) {
  return as_doubles(combine(as_bytes(values), phase, [&](const Parts& parts) {
    std::vector<double> total = as_doubles(parts[0]);
    for (std::size_t r = 1; r < parts.size(); ++r) {
      const std::vector<double> one = as_doubles(parts[r]);
      check(one.size() == total.size(), fmt::format("{}: rank 0 has {} values, rank {} has {}",
                                                    phase, total.size(), r, one.size()));
      for (std::size_t i = 0; i < one.size(); ++i) total[i] = operation(total[i], one[i]);
    }
    return as_bytes(total);
  }));
}

}  // namespace lockstep::comm
