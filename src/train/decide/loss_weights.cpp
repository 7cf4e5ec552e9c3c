#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::train {
namespace {

constexpr std::string_view automatic = "auto";

/// "auto,10": the largest of the weights that are found, none with "auto"; nullopt: a list.
std::optional<double> largest_found(const std::string& text) {
  if (text == automatic) return std::numeric_limits<double>::infinity();
  const std::vector<std::string> words = listed(text);
  if (words.size() != 2 || words[0] != automatic) return {};
  const auto most = real_number(words[1]);
  return most && *most >= 1 ? most : std::nullopt;
}

/// "1,2.5,3": a number for each of the names.
std::vector<double> parse_weights(const std::string& key, const std::string& text,
                                  const data::DataSetInfo& info) {
  std::vector<double> weights;
  for (const std::string& entry : listed(text)) {
    const auto number = real_number(entry);
    require(number && std::isfinite(*number) && *number >= 0,
            fmt::format("{} = {}: '{}' is not a weight: numbers from 0, with commas, or auto", key,
                        text, entry));
    weights.push_back(*number);
  }
  require(weights.size() == info.classes.size(),
          fmt::format("{} = {} has {} numbers, and the training set has {} {}", key, text,
                      weights.size(), info.classes.size(), choice_name(info.task)));
  return weights;
}

/// How many of an epoch's rows are of each class.
std::vector<double> rows_of_classes(const data::DataSet& training,
                                    const data::ClassBalance* balance) {
  std::vector<double> rows(training.info().classes.size());
  for (std::size_t c = 0; balance != nullptr && c < rows.size(); ++c)
    rows[c] = static_cast<double>(balance->places_of(c));
  if (balance == nullptr)
    for (const std::int32_t label : training.labels()) ++rows[static_cast<std::size_t>(label)];
  return rows;
}

std::vector<float> class_weights(const std::string& text, const data::DataSet& training,
                                 const data::ClassBalance* balance) {
  const std::string key = "optim.class-weights";
  const std::vector<double> rows = rows_of_classes(training, balance);
  std::vector<double> weights(rows.size());
  if (text != automatic) weights = parse_weights(key, text, training.info());
  // A class without rows weighs nothing: only smoothing would ask for it.
  for (std::size_t c = 0; text == automatic && c < rows.size(); ++c)
    weights[c] = rows[c] > 0 ? 1 / rows[c] : 0;
  double sum = 0, all = 0;
  for (std::size_t c = 0; c < rows.size(); ++c) {
    sum += weights[c] * rows[c];
    all += rows[c];
  }
  require(sum > 0, fmt::format("{} = {}: all training rows weigh 0", key, text));
  std::vector<float> scaled;
  for (const double weight : weights) scaled.push_back(static_cast<float>(weight * all / sum));
  return scaled;
}

std::vector<float> positive_weights(const std::string& text, const data::DataSet& training) {
  const std::size_t labels = training.info().classes.size();
  std::vector<float> weights;
  const auto most = largest_found(text);
  if (!most) {
    for (const double weight : parse_weights("optim.positive-weights", text, training.info()))
      weights.push_back(static_cast<float>(weight));
    return weights;
  }
  for (std::size_t k = 0; k < labels; ++k) {
    double ones = 0, zeros = 0;
    for (std::size_t row = 0; row < training.info().rows; ++row) {
      const float wanted = training.wanted(row, k);
      ones += wanted == 1;
      zeros += wanted == 0;
    }
    // A label that all rows have, or none, has nothing to be weighed against.
    weights.push_back(ones > 0 && zeros > 0 ? static_cast<float>(std::min(zeros / ones, *most))
                                            : 1);
  }
  return weights;
}

}  // namespace

std::vector<float> loss_weights(const config::Config& config, const data::DataSet& training,
                                const data::ClassBalance* balance) {
  const config::Config::Optim& given = config.optim;
  if (!given.class_weights.empty()) return class_weights(given.class_weights, training, balance);
  if (!given.positive_weights.empty()) return positive_weights(given.positive_weights, training);
  return {};
}

std::string say_weights(const std::vector<float>& weights, const data::ClassBalance* balance,
                        const data::DataSetInfo& training) {
  std::string said;
  if (!weights.empty()) {
    const auto [low, high] = std::ranges::minmax(weights);
    said = fmt::format("the loss of {} is multiplied by {:.4g} to {:.4g}",
                       training.task == data::Task::labels ? "labels that apply" : "classes", low,
                       high);
  }
  if (balance == nullptr) return said;
  std::size_t low = std::numeric_limits<std::size_t>::max(), high = 0;
  for (std::size_t c = 0; c < training.classes.size(); ++c) {
    if (balance->rows_of(c) == 0) continue;
    low = std::min(low, balance->places_of(c));
    high = std::max(high, balance->places_of(c));
  }
  return fmt::format("{}{}an epoch takes {} to {} rows of each class, and a row up to {} times",
                     said, said.empty() ? "" : "; ", low, high, balance->most_visits);
}

}  // namespace lockstep::train
