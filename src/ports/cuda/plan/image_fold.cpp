#include "ports/cuda/plan/image_fold.hpp"

namespace lockstep::cuda {

std::optional<Fold> image_fold(const nn::Network& network, backend::Precision precision) {
  const nn::Node& image = network.nodes.front();
  if (image.op != nn::Op::input || storage_of(precision) == Storage::fp32) return std::nullopt;
  const std::vector<std::size_t> readers = nn::readers(network).front();
  if (readers.size() != 1) return std::nullopt;
  const nn::Node& conv = network.nodes[readers[0]];
  // A kernel smaller than its stride leaves pixels out, which a folded image would contain.
  if (conv.op != nn::Op::conv || conv.stride == 1 || conv.kernel < conv.stride) return std::nullopt;
  const auto number = [](std::size_t n) { return static_cast<int>(n); };
  const Fold fold{.outputs = number(conv.shape.channels),
                  .kernel = number(conv.kernel),
                  .stride = number(conv.stride),
                  .padding = number(conv.padding),
                  .out_height = number(conv.shape.height),
                  .out_width = number(conv.shape.width),
                  .height = number(image.shape.height),
                  .width = number(image.shape.width),
                  .channels = number(image.shape.channels),
                  .padded = number(padded_image_channels(image.shape.channels))};
  if (fold.folded_channels() > most_folded_channels) return std::nullopt;
  return fold;
}

ConvShape folded_shape(const Fold& fold, std::size_t batch) {
  const auto count = [](int n) { return static_cast<std::size_t>(n); };
  return {.batch = batch,
          .channels = count(fold.folded_channels()),
          .height = count(fold.folded_height()),
          .width = count(fold.folded_width()),
          .outputs = count(fold.outputs),
          .out_height = count(fold.out_height),
          .out_width = count(fold.out_width),
          .kernel_height = count(fold.cells())};
}

}  // namespace lockstep::cuda
