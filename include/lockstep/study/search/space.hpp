#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/text/choices.hpp"
#include "lockstep/study/search/budget.hpp"

/// What a search tries: keys of a training, each with a range or choices, and the points among
/// them.
namespace lockstep::study {

/// The values of one key.
struct Dimension {
  std::string key;                        ///< "optim.lr"
  std::vector<std::string> choices = {};  ///< as the key takes them; empty: a range of numbers
  double low = 0, high = 0;               ///< both are values, too
  bool log = false;                       ///< equally many points in each factor of a range
  bool integer = false;                   ///< whole numbers only
  /// Counts only where another key, which is above it, has one of these values. Elsewhere the key
  /// has its usual value.
  struct Condition {
    std::string key;
    std::vector<std::string> values;
  };
  std::optional<Condition> when = std::nullopt;
};

struct SearchSpace {
  std::vector<Dimension> dimensions;
  Budget budget = {};
};

/// Reads a TOML text, whose keys are those of a training:
///   [optim.lr]
///   low = 0.01
///   high = 1
///   log = true
///   [optim.rule]
///   choices = ["sgd", "lars"]
///   [optim.trust]
///   low = 0.0005
///   high = 0.01
///   when = "optim.rule = lars"      # or "optim.rule = lars|lamb"
///   [budget]
///   flops = 1e9                     # and latency-ms
/// `integer = true` takes whole numbers only; keys that take no others have it without a word.
/// Throws InputError naming `origin`, the line and the key.
SearchSpace read_space(std::string_view text, const std::string& origin);

/// Whether a key says how long a trial is, by what it is judged, or what its run leaves: then it is
/// the same in all trials. REQUIRES: it is a key.
bool is_of_search(const std::string& key);

enum class PointSampler { sobol, random };

/// Values by key, as the key takes them; keys of conditions that are not met have their usual one.
using PointValues = std::map<std::string, std::string>;

/// Joe and Kuo's directions end here in this program.
inline constexpr std::size_t most_sobol_dimensions = 21;

/// Coordinate `dimension` of point `index`, from 0 to less than 1: a pure function of its
/// arguments. Sobol's points are scrambled (Owen 1995), so each seed has others, and of the first
/// 2^k each 2^k-th part of every coordinate has one. REQUIRES: most_sobol_dimensions at most.
double coordinate(PointSampler sampler, std::uint64_t seed, std::uint32_t index,
                  std::size_t dimension);

/// Point `index` of the space: the same for any process, and whatever was asked before. `draw`:
/// from 1 on, another one in its place, at random.
PointValues point_of(const SearchSpace& space, PointSampler sampler, std::uint64_t seed,
                     std::uint32_t index, std::uint64_t draw = 0);

}  // namespace lockstep::study

namespace lockstep {

template <>
struct Choices<study::PointSampler> {
  using enum study::PointSampler;
  static constexpr Choice<study::PointSampler> all[] = {{sobol, "sobol"}, {random, "random"}};
};

}  // namespace lockstep
