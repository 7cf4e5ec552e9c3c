#include "lockstep/model/weight_mean.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/network_text.hpp"
#include "model/description.hpp"

namespace lockstep::model {
namespace {

std::string input_text(const nn::Shape& shape) {
  return fmt::format("images of {} x {} x {}", shape.height, shape.width, shape.channels);
}

/// What the second model has other than the first one, as "what it has, which ... what there is".
std::string difference(const Model& first, const Model& other) {
  const Description &a = first.about, &b = other.about;
  const auto differ = [](const std::string& here, const std::string& there) {
    return fmt::format("{}, and the first file has {}", here, there);
  };
  if (a.network.name != b.network.name) return differ(b.network.name, a.network.name);
  if (a.input.task != b.input.task)
    return differ(choice_name(b.input.task), choice_name(a.input.task));
  if (a.network.classes != b.network.classes)
    return differ(counted(b.network.classes, "class"), counted(a.network.classes, "class"));
  const auto& [names, others] = std::pair(a.input.classes, b.input.classes);
  for (std::size_t c = 0; c < std::min(names.size(), others.size()); ++c)
    if (names[c] != others[c])
      return differ(fmt::format("'{}' as class {}", others[c], c), "'" + names[c] + "'");
  if (a.network.input != b.network.input)
    return differ(input_text(b.network.input), input_text(a.network.input));
  if (a.input.element != b.input.element)
    return differ(choice_name(b.input.element), choice_name(a.input.element));
  if (data::say_no_data(a.input) != data::say_no_data(b.input))
    return differ(data::say_no_data(b.input), data::say_no_data(a.input));
  if (a.input.shaping != b.input.shaping)
    return differ("other values of data.clip and data.curve: " + say_shaping(b.input.shaping),
                  "'" + say_shaping(a.input.shaping) + "'");
  if (a.input.mean != b.input.mean || a.input.stddev != b.input.stddev)
    return differ(
        fmt::format("mean [{}] and deviation [{}] of its input", join(b.input.mean, ", "),
                    join(b.input.stddev, ", ")),
        fmt::format("[{}] and [{}]", join(a.input.mean, ", "), join(a.input.stddev, ", ")));
  if (a.input.target_mean != b.input.target_mean || a.input.target_stddev != b.input.target_stddev)
    return differ(fmt::format("mean [{}] and deviation [{}] of its values",
                              join(b.input.target_mean, ", "), join(b.input.target_stddev, ", ")),
                  fmt::format("[{}] and [{}]", join(a.input.target_mean, ", "),
                              join(a.input.target_stddev, ", ")));
  for (std::size_t t = 0; t < std::min(first.weights.size(), other.weights.size()); ++t) {
    const nn::Tensor &one = first.weights[t].tensor, &two = other.weights[t].tensor;
    if (one.name != two.name || one.shape != two.shape)
      return differ(fmt::format("'{}' of {}", two.name, shape_text(two.shape)),
                    fmt::format("'{}' of {}", one.name, shape_text(one.shape)));
  }
  return network_text(a.network) == network_text(b.network) ? "" : "another form of the network";
}

}  // namespace

void WeightMean::add(Model model, const std::string& path) {
  for (const Weight& weight : model.weights) require_finite(weight, path + ": ");
  if (count_ == 0) {
    first_path_ = path;
    for (const Weight& weight : model.weights) sums_.emplace_back(weight.values.size());
  } else if (const std::string other = difference(first_, model); !other.empty()) {
    throw InputError(
        fmt::format("{} and {} have no mean: {} has {}", first_path_, path, path, other));
  }
  for (std::size_t t = 0; t < sums_.size(); ++t)
    for (std::size_t i = 0; i < sums_[t].size(); ++i)
      sums_[t][i] += static_cast<double>(model.weights[t].values[i]);
  if (count_++ == 0) first_ = std::move(model);
}

Model WeightMean::take() && {
  check(count_ > 0, "a mean of no models");
  for (std::size_t t = 0; t < sums_.size(); ++t)
    for (std::size_t i = 0; i < sums_[t].size(); ++i)
      first_.weights[t].values[i] = static_cast<float>(sums_[t][i] / static_cast<double>(count_));
  return std::move(first_);
}

}  // namespace lockstep::model
