#include "lockstep/data/shaping.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::data {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw InputError(fmt::format("data.clip = {}: {}", text, why));
}

AskedLimit limit_in(std::string_view part, std::string_view text) {
  AskedLimit limit;
  limit.is_percentile = part.starts_with('p');
  const auto number = real_number(part.substr(limit.is_percentile ? 1 : 0));
  if (!number || !std::isfinite(static_cast<float>(*number)))
    refuse(text, fmt::format("'{}' is neither a number nor a percentile such as p2", part));
  if (limit.is_percentile && (*number < 0 || *number > 100))
    refuse(text, fmt::format("{} is not a percentile: p0 to p100 are", part));
  limit.number = *number;
  return limit;
}

AskedLimits pair_in(std::string_view part, std::string_view text) {
  const std::size_t comma = part.find(',');
  if (comma == std::string_view::npos || part.find(',', comma + 1) != std::string_view::npos)
    refuse(text,
           "two limits with a comma are expected, such as 0,1 or p2,p98; with semicolons, "
           "two for each channel");
  const AskedLimits limits{limit_in(part.substr(0, comma), text),
                           limit_in(part.substr(comma + 1), text)};
  if (limits.low.is_percentile == limits.high.is_percentile &&
      !(limits.low.number < limits.high.number))
    refuse(text, "the first limit is not below the second");
  return limits;
}

std::string pair_text(const Shaping& shaping, std::size_t channel) {
  return fmt::format("{},{}", shaping.low[channel], shaping.high[channel]);
}

}  // namespace

std::string limits_text(const Shaping& shaping) {
  std::vector<std::string> pairs;
  for (std::size_t c = 0; c < shaping.low.size(); ++c) pairs.push_back(pair_text(shaping, c));
  if (std::ranges::all_of(pairs, [&](const std::string& one) { return one == pairs[0]; }))
    pairs.resize(std::min<std::size_t>(pairs.size(), 1));
  return join(pairs, ";");
}

std::string say_shaping(const Shaping& shaping) {
  std::vector<std::string> said;
  if (!shaping.low.empty()) said.push_back("clip " + limits_text(shaping));
  if (shaping.curve != Curve::linear)
    said.push_back(std::string("curve ") + choice_name(shaping.curve));
  return join(said, ", ");
}

std::vector<AskedLimits> asked_limits(std::string_view text) {
  std::vector<AskedLimits> limits;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    limits.push_back(pair_in(text.substr(begin, end - begin), text));
    begin = end + 1;
  }
  return limits;
}

bool asks_percentiles(std::string_view text) {
  return std::ranges::any_of(asked_limits(text), [](const AskedLimits& one) {
    return one.low.is_percentile || one.high.is_percentile;
  });
}

}  // namespace lockstep::data
