#include "model/formats/readers.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "model/description.hpp"

namespace lockstep::model {
namespace {

constexpr std::array<std::string_view, 6> prefixes = {"module.", "_orig_mod.", "model.",
                                                      "net.",    "encoder_q.", "backbone."};
constexpr std::string_view batch_counter = "num_batches_tracked";

/// How a network differs from the tensors of a file.
struct Difference {
  std::size_t count = 0;
  std::string first;  ///< of them, in the order of the forward pass
};

Difference compare(const nn::Network& network, const ByName& tensors, bool has_head) {
  Difference found;
  const auto add = [&found](const std::string& what) {
    if (found.count++ == 0) found.first = what;
  };
  std::size_t known = 0;
  std::map<std::string, bool> expected;
  for (const nn::Tensor& tensor : nn::tensors(network)) {
    if (!has_head && nn::in_head(tensor.role)) continue;
    expected[tensor.name] = true;
    const auto there = tensors.find(tensor.name);
    if (there == tensors.end()) {
      add(fmt::format("it has no tensor '{}'", tensor.name));
      continue;
    }
    ++known;
    if (there->second->shape != tensor.shape)
      add(fmt::format("tensor '{}' is {} there and {} here", tensor.name,
                      shape_text(there->second->shape), shape_text(tensor.shape)));
  }
  if (known == tensors.size()) return found;
  for (const auto& [name, tensor] : tensors)
    if (!expected.contains(name))
      add(fmt::format("it has a tensor '{}' that this model lacks", printable(name)));
  return found;
}

/// An extent of a tensor that is there and has it, or another number.
std::size_t extent_of(const ByName& tensors, const char* name, std::size_t dimension,
                      std::size_t otherwise) {
  const auto found = tensors.find(name);
  if (found == tensors.end() || found->second->shape.size() <= dimension) return otherwise;
  return found->second->shape[dimension];
}

/// A hint where all names of a ResNet have something before them that is not taken off.
std::string unknown_prefix(const ByName& tensors) {
  constexpr std::string_view first = "conv1.weight", second = "layer1.0.conv1.weight";
  for (const auto& [name, tensor] : tensors) {
    if (!name.ends_with("." + std::string(first))) continue;
    const std::string prefix = name.substr(0, name.size() - first.size());
    if (tensors.contains(prefix + std::string(second)))
      return fmt::format("; its names begin with '{}': save it without that", printable(prefix));
  }
  return "";
}

/// The design that the tensors' names and shapes tell.
nn::Design design_of(const ByName& tensors) {
  const bool is_deep = tensors.contains("conv1.0.weight");
  nn::Design design{.stem = is_deep                                         ? nn::Stem::deep
                            : extent_of(tensors, "conv1.weight", 2, 0) == 3 ? nn::Stem::small
                                                                            : nn::Stem::large,
                    .block = tensors.contains("layer1.0.conv3.weight") ? nn::BlockKind::bottleneck
                                                                       : nn::BlockKind::basic,
                    .blocks = {},
                    .width = extent_of(tensors, is_deep ? "conv1.6.weight" : "conv1.weight", 0, 0)};
  if (design.block == nn::BlockKind::bottleneck)
    design.inner = extent_of(tensors, "layer1.0.conv1.weight", 0, 0);
  if (const std::size_t each = extent_of(tensors, "layer1.0.conv2.weight", 1, 0); each > 0)
    design.groups = design.inner / each;
  for (std::size_t stage = 1; stage <= nn::most_stages; ++stage) {
    std::size_t blocks = 0;
    while (blocks < nn::most_blocks &&
           tensors.contains(fmt::format("layer{}.{}.conv1.weight", stage, blocks)))
      ++blocks;
    if (blocks == 0) break;
    design.blocks.push_back(blocks);
  }
  return design;
}

/// A network of this name, unless it has none of the kind.
std::optional<nn::Network> try_network(const nn::ResNetSpec& spec) {
  try {
    return nn::resnet(spec);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

}  // namespace

bool counts_batches(const std::string& name) { return name.ends_with(batch_counter); }

ByName by_name(const TensorFile& file) {
  std::vector<const StoredTensor*> kept;
  for (const StoredTensor& tensor : file.tensors)
    if (!counts_batches(tensor.name)) kept.push_back(&tensor);
  require(!kept.empty(), "it has no tensors");
  std::size_t skipped = 0;
  const auto all_begin_with = [&](std::string_view prefix) {
    return std::all_of(kept.begin(), kept.end(), [&](const StoredTensor* tensor) {
      return std::string_view(tensor->name).substr(skipped).starts_with(prefix);
    });
  };
  for (;;) {
    const auto prefix = std::find_if(prefixes.begin(), prefixes.end(), all_begin_with);
    if (prefix == prefixes.end()) break;
    skipped += prefix->size();
  }
  ByName tensors;
  for (const StoredTensor* tensor : kept)
    require(tensors.emplace(tensor->name.substr(skipped), tensor).second,
            fmt::format("two of its tensors are named '{}'", printable(tensor->name)));
  return tensors;
}

nn::ResNetSpec deduce(const ByName& tensors, bool may_lack_head) {
  constexpr std::size_t most_classes = 1 << 20, most_channels = 1 << 10;
  const std::size_t classes =
      std::clamp<std::size_t>(extent_of(tensors, "fc.weight", 0, 2), 1, most_classes);
  const std::size_t channels = std::clamp<std::size_t>(
      extent_of(tensors, "conv1.weight", 1, extent_of(tensors, "conv1.0.weight", 1, 3)), 1,
      most_channels);
  const bool has_head =
      !may_lack_head || tensors.contains("fc.weight") || tensors.contains("fc.bias");
  std::optional<nn::ResNetSpec> best;
  Difference least;
  const auto compare_with = [&](const std::string& model, const nn::Design& design) {
    for (const nn::Shortcut shortcut :
         {nn::Shortcut::pad, nn::Shortcut::conv, nn::Shortcut::average}) {
      nn::ResNetSpec spec = nn::usual_resnet(model, 0, classes);
      spec.design = design;
      spec.channels = channels;
      spec.shortcut = shortcut;
      spec.classifies = classes > 1;  // one output is enough for other tasks
      const std::optional<nn::Network> network = try_network(spec);
      if (!network) continue;
      const Difference difference = compare(*network, tensors, has_head);
      if (best && difference.count >= least.count) continue;
      best = spec;
      least = difference;
    }
  };
  for (const std::string& model : nn::resnet_models()) compare_with(model, {});
  if (const nn::Design design = design_of(tensors); least.count > 0 && !design.blocks.empty())
    compare_with(best->model, design);
  require(least.count == 0,
          fmt::format("its tensors are not those of a ResNet that lockstep knows: compared with "
                      "{}, {}{}",
                      best->model, least.first, unknown_prefix(tensors)));
  return *best;
}

}  // namespace lockstep::model
