#include "lockstep/comm/meeting.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/activity.hpp"

namespace lockstep::comm {
namespace {

template <class Value>
std::string as_bytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

std::vector<double> as_doubles(std::string_view bytes) {
  std::vector<double> values(bytes.size() / sizeof(double));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

std::string MeetingControl::attend(const std::string& mine, std::string_view phase,
                                   const Combine& combine) {
  const activity::Waiting waiting;
  return meet(mine, phase, combine);
}

void MeetingControl::barrier(std::string_view phase) {
  attend("", phase, [](const Parts&) { return std::string(); });
}

std::vector<std::string> MeetingControl::gather(const std::string& mine, std::string_view phase) {
  const std::string all = attend(mine, phase, [](const Parts& parts) {
    std::vector<std::uint64_t> sizes;
    std::string text;
    for (const std::string& part : parts) {
      sizes.push_back(part.size());
      text += part;
    }
    return as_bytes(sizes) + text;
  });
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world()));
  std::memcpy(sizes.data(), all.data(), sizes.size() * sizeof(std::uint64_t));
  std::vector<std::string> parts;
  std::size_t offset = sizes.size() * sizeof(std::uint64_t);
  for (const std::uint64_t size : sizes) {
    parts.push_back(all.substr(offset, size));
    offset += size;
  }
  return parts;
}

std::string MeetingControl::combine(const std::string& mine, std::string_view phase,
                                    const Combine& combine) {
  return attend(mine, phase, combine);
}

std::string MeetingControl::broadcast(const std::string& from_root, std::string_view phase) {
  return attend(rank() == 0 ? from_root : "", phase, [](const Parts& parts) { return parts[0]; });
}

std::vector<double> MeetingControl::sum(const std::vector<double>& values, std::string_view phase) {
  return fold(values, phase, [](double a, double b) { return a + b; });
}

std::vector<double> MeetingControl::max(const std::vector<double>& values, std::string_view phase) {
  return fold(values, phase, [](double a, double b) { return a > b || a != a ? a : b; });
}

std::vector<double> MeetingControl::fold(const std::vector<double>& values, std::string_view phase,
                                         const std::function<double(double, double)>& operation) {
  return as_doubles(attend(as_bytes(values), phase, [&](const Parts& parts) {
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
