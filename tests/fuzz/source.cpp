// Fuzzes CIFAR's binary files and IDX files, gzipped or not: the first byte says which. An IDX
// input is two files; the second byte is the length of the second one.
#include <algorithm>

#include "lockstep/pack/source/source.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {
namespace {

std::string idx(std::size_t rows, std::size_t dimensions, std::size_t side) {
  std::string bytes = {0, 0, 8, static_cast<char>(dimensions)};
  std::size_t count = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    const std::size_t size = d == 0 ? rows : side;
    bytes += {0, 0, 0, static_cast<char>(size)};
    count *= size;
  }
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(i % 3);
  return bytes;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const std::string labels = idx(4, 1, 0);
  all.push_back(std::string{0, static_cast<char>(labels.size())} + idx(4, 3, 5) + labels);
  all.push_back(std::string{1, 0} + std::string(2 * 3073, 5));
  all.push_back(std::string{2, 0} + std::string(2 * 3074, 5));
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < 2) return;
  static const Scratch folder;
  static ScratchFile images(folder, "idx/train-images-idx3-ubyte"),
      labels(folder, "idx/train-labels-idx1-ubyte"), cifar10(folder, "cifar10/data_batch_1.bin"),
      cifar100(folder, "cifar100/train.bin");
  static const std::array<std::string, 3> kinds = {"idx", "cifar10", "cifar100"};
  const std::size_t kind = bytes[0] % kinds.size(), length = bytes[1];
  const auto rest = bytes.subspan(2), behind = rest.last(std::min(length, rest.size()));
  if (kind == 0) {
    images.put(rest.first(rest.size() - behind.size()));
    labels.put(behind);
  } else {
    (kind == 1 ? cifar10 : cifar100).put(rest);
  }
  pack::SourceSpec spec;
  spec.kind = kinds[kind];
  spec.files = {folder.path() / kinds[kind]};
  const auto source = pack::open_source(spec, {});
  for (std::size_t row = 0; row < std::min<std::size_t>(source->rows(), 4); ++row) {
    const data::Image image = source->read(row);
    require_law(image.pixels.size() == image.height * image.width * image.channels,
                "an image has its pixels");
    const auto label = static_cast<std::size_t>(source->label(row));
    require_law(label < source->classes().size(), "a label has its class");
  }
}

}  // namespace lockstep::fuzz
