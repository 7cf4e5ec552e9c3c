#include "lockstep/model/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "lockstep/backend/pace.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/model/network_text.hpp"
#include "model/description.hpp"

namespace lockstep::model {
namespace {

/// Keeps weights in plain memory. A tensor takes memory only when it is imported: by then its size
/// is known to be that of the tensor in the file.
class PlainWeights final : public backend::Parameters {
 public:
  explicit PlainWeights(const nn::Network& network)
      : layout_(nn::arena_layout(network, [](const nn::Tensor& tensor) { return tensor.count(); })),
        values_(layout_.slices.size()) {}

  const nn::ArenaLayout& arena() const override { return layout_; }
  float* device_pointer(backend::Part) override { throw Error("a file's weights have no arena"); }
  void import_own(backend::Part, std::size_t slice, std::span<const float> plain) override {
    values_[slice].assign(plain.begin(), plain.end());
  }
  void export_own(backend::Part, std::size_t, std::span<float>) const override {
    throw Error("a file's weights have no parts");
  }
  std::uint32_t own_hash() const override { throw Error("a file's weights have no hash"); }

  std::vector<Weight> take() {
    std::vector<Weight> weights;
    for (std::size_t i = 0; i < values_.size(); ++i)
      weights.push_back({layout_.slices[i].tensor, std::move(values_[i])});
    return weights;
  }

 private:
  nn::ArenaLayout layout_;
  std::vector<std::vector<float>> values_;  // by slice
};

nn::Network read_network(const CheckpointHeader& header, const std::filesystem::path& path) {
  try {
    return parse_network(header.network);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: the data set /network: {}", path.string(), error.what()));
  }
}

}  // namespace

void judge(const Description& about, const std::filesystem::path& path) {
  const auto expect = [&path](bool holds, const std::string& what) {
    require(holds, fmt::format("{}: {}", path.string(), what));
  };
  const data::DataSetInfo& input = about.input;
  const nn::Shape& shape = about.network.input;
  expect(
      nn::Shape{input.channels, input.height, input.width} == shape,
      fmt::format("its network takes {} x {} x {}, but its header says {} x {} x {}", shape.height,
                  shape.width, shape.channels, input.height, input.width, input.channels));
  expect(input.classes.empty() || input.classes.size() == about.network.classes,
         fmt::format("its network has {} classes, but it names {}", about.network.classes,
                     input.classes.size()));
  expect(about.network.classes >= 2 || input.task != data::Task::classes,
         "its network has one output, which tells no classes apart");
  const std::size_t values = input.task == data::Task::values ? about.network.classes : 0;
  expect(input.target_mean.size() == values && input.target_stddev.size() == values,
         fmt::format("it has means and deviations of {} values, not {}", input.target_mean.size(),
                     values));
  for (std::size_t k = 0; k < values; ++k)
    expect(std::isfinite(input.target_mean[k]) && std::isfinite(input.target_stddev[k]) &&
               input.target_stddev[k] > 0,
           fmt::format("mean {} and deviation {} of value {} cannot be its units",
                       input.target_mean[k], input.target_stddev[k], k));
  for (std::size_t channel = 0; channel < input.shaping.low.size(); ++channel)
    expect(std::isfinite(input.shaping.low[channel]) &&
               std::isfinite(input.shaping.high[channel]) &&
               input.shaping.low[channel] <= input.shaping.high[channel],
           fmt::format("{} and {} of channel {} cannot be limits (data.clip)",
                       input.shaping.low[channel], input.shaping.high[channel], channel));
  for (std::size_t channel = 0; channel < input.mean.size(); ++channel)
    expect(std::isfinite(input.mean[channel]) && std::isfinite(input.stddev[channel]) &&
               input.stddev[channel] > 0,
           fmt::format("mean {} and deviation {} of channel {} cannot normalise anything",
                       input.mean[channel], input.stddev[channel], channel));
}

Description describe(const std::filesystem::path& path, const DescribeOld& describe_old) {
  CheckpointHeader header = read_header(path);
  Description about;
  if (header.explains_itself()) {
    about.network = read_network(header, path);
    about.input = std::move(header.input);
    about.preparation = header.preparation;
  } else {
    require(describe_old != nullptr,
            fmt::format("{}: has checkpoint format {}, which only the configuration of its "
                        "training explains",
                        path.string(), header.format));
    about = describe_old(header, path);
  }
  judge(about, path);
  return about;
}

Model load(const std::filesystem::path& path, const DescribeOld& describe_old, backend::Part part) {
  const CheckpointHeader header = read_header(path);
  require(!backend::is_rehearsal(header.backend),
          fmt::format("{}: a rehearsal wrote it (--backend clock): it holds no trained weights",
                      path.string()));
  Model model{describe(path, describe_old), {}, header.progress.step, {}};
  PlainWeights weights(model.about.network);
  if (part == backend::Part::average)
    load_average(path, weights);
  else
    load_tensors(path, weights, false);
  model.weights = weights.take();
  return model;
}

void require_finite(const Weight& weight, const std::string& where) {
  require(std::all_of(weight.values.begin(), weight.values.end(),
                      [](float value) { return std::isfinite(value); }),
          fmt::format("{}tensor '{}' has a value that is not finite", where, weight.tensor.name));
}

void put_weights(const Model& model, backend::Parameters& parameters) {
  const std::vector<nn::Slice>& slices = parameters.layout().slices;
  check(slices.size() == model.weights.size(), "parameters of another network");
  for (std::size_t i = 0; i < slices.size(); ++i) {
    check(slices[i].tensor.name == model.weights[i].tensor.name, "parameters of another network");
    parameters.import_slice(backend::Part::weights, i, model.weights[i].values);
  }
}

data::AugmentSpec evaluation_augment(const Preparation& preparation, const data::DataSetInfo& input,
                                     const data::DataSetInfo& stored) {
  const bool jpeg = stored.encoding == data::Encoding::jpeg;
  const bool fits = !jpeg && stored.height == input.height && stored.width == input.width;
  const Resized fit = preparation.fit;
  if (!jpeg && !fits && fit == Resized::jpegs_only)
    return {};  // as stored: a later check says that it does not belong there
  const bool resized = fit == Resized::all || (!fits && (jpeg || fit == Resized::others));
  return {.crop = data::Crop::centre,
          .height = input.height,
          .width = input.width,
          .short_side = resized ? preparation.short_side : 0};
}

}  // namespace lockstep::model
