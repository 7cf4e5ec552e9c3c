#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <zlib.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/pack/source/source.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

using Bytes = std::vector<std::uint8_t>;
using GzFile = Owned<gzFile, gzclose_r>;

/// An IDX file's header: unsigned bytes in `size.size()` dimensions.
struct Idx {
  fs::path path;
  std::vector<std::size_t> size;
  Bytes values;
};

/// The whole file, unpacked when it is gzipped (zlib detects that), but no more than `most` bytes:
/// a wrong header must not make us read a whole disk.
Bytes read_at_most(gzFile file, std::size_t most, const fs::path& path) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  Bytes bytes;
  while (bytes.size() < most) {
    const std::size_t before = bytes.size(), want = std::min(piece, most - before);
    bytes.resize(before + want);
    const int got = gzread(file, bytes.data() + before, static_cast<unsigned>(want));
    int code = Z_OK;
    const char* reason = gzerror(file, &code);
    require(got >= 0 && (code == Z_OK || code == Z_STREAM_END),
            fmt::format("{}: cannot be unpacked after {} bytes: truncated or damaged ({})",
                        path.string(), before, reason));
    bytes.resize(before + static_cast<std::size_t>(got));
    if (got == 0) break;
  }
  return bytes;
}

/// The format is LeCun's: 0, 0, type (8: unsigned byte), dimensions; then each size, big-endian.
Idx read_idx(const fs::path& path, std::size_t dimensions) {
  const GzFile file(gzopen(path.c_str(), "rb"));
  require(static_cast<bool>(file), fmt::format("{}: cannot be opened", path.string()));
  const std::size_t header_bytes = 4 + 4 * dimensions;
  const Bytes header = read_at_most(file.get(), header_bytes, path);
  require(header.size() == header_bytes,
          fmt::format("{}: truncated: expected a header of {} bytes, found {}", path.string(),
                      header_bytes, header.size()));
  require(header[0] == 0 && header[1] == 0 && header[2] == 8 && header[3] == dimensions,
          fmt::format("{}: not an IDX file of unsigned bytes in {} dimensions", path.string(),
                      dimensions));
  Idx idx{path, {}, {}};
  std::size_t count = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::size_t size = 0;
    for (std::size_t i = 0; i < 4; ++i) size = size << 8 | header[4 + 4 * d + i];
    idx.size.push_back(size);
    require(size > 0 && count <= (std::size_t{1} << 40) / size,
            fmt::format("{}: its header claims {} as size {}", path.string(), size, d));
    count *= size;
  }
  idx.values = read_at_most(file.get(), count + 1, path);
  require(idx.values.size() == count,
          fmt::format("{}: expected {} bytes after the header, found {}", path.string(), count,
                      idx.values.size() > count ? "more" : std::to_string(idx.values.size())));
  return idx;
}

/// The one file whose name contains `split` and `part`. A file and its gzipped copy count once.
std::optional<fs::path> find(const fs::path& folder, const std::vector<std::string>& splits,
                             const std::string& part) {
  std::optional<fs::path> found;
  for (const std::string& name : file_names(folder)) {
    const auto has = [&](const std::string& word) { return name.find(word) != std::string::npos; };
    if (!has(part) || !std::any_of(splits.begin(), splits.end(), has)) continue;
    if (found && name == found->filename().string() + ".gz") continue;
    require(!found, fmt::format("{}: both {} and {} are there: keep one data set in a folder",
                                folder.string(), found ? found->filename().string() : "", name));
    found = folder / name;
  }
  return found;
}

class IdxFiles final : public Source {
 public:
  explicit IdxFiles(const fs::path& folder) {
    const bool training = add_split(folder, {"train"});
    require(training, fmt::format("{}: no training images: expected train-images-idx3-ubyte and "
                                  "train-labels-idx1-ubyte, gzipped or not",
                                  folder.string()));
    const Bytes& labels = splits_[0].labels.values;
    const std::size_t classes = *std::max_element(labels.begin(), labels.end()) + std::size_t{1};
    for (std::size_t c = 0; c < classes; ++c) classes_.push_back(std::to_string(c));
    std::vector<bool> there(classes, false);
    for (const std::uint8_t label : labels) there[label] = true;
    if (const auto none = std::count(there.begin(), there.end(), false); none > 0)
      remarks_.push_back(fmt::format("{} of {} classes have no training image", none, classes));
    if (add_split(folder, {"t10k", "test"})) check_test_split();
  }

  std::string kind() const override { return "idx"; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::size_t rows() const override {
    return training_rows() + (splits_.size() > 1 ? splits_[1].rows() : 0);
  }
  std::size_t training_rows() const override { return splits_[0].rows(); }
  std::size_t native_channels() const override { return 1; }
  std::int32_t label(std::size_t row) const override {
    return split_of(row).labels.values[in_split(row)];
  }
  std::string name(std::size_t row) const override {
    return fmt::format("{}, row {}", split_of(row).images.path.string(), in_split(row));
  }
  data::Image read(std::size_t row) const override {
    const Idx& images = split_of(row).images;
    const std::size_t height = images.size[1], width = images.size[2];
    const auto first =
        images.values.begin() + static_cast<std::ptrdiff_t>(in_split(row) * height * width);
    return {.height = height,
            .width = width,
            .channels = 1,
            .pixels = Bytes(first, first + static_cast<std::ptrdiff_t>(height * width))};
  }

 private:
  struct Split {
    Idx images, labels;
    std::size_t rows() const { return labels.size[0]; }
  };

  const Split& split_of(std::size_t row) const { return splits_[row < training_rows() ? 0 : 1]; }
  std::size_t in_split(std::size_t row) const {
    return row < training_rows() ? row : row - training_rows();
  }

  bool add_split(const fs::path& folder, const std::vector<std::string>& names) {
    const auto images = find(folder, names, "idx3-ubyte"),
               labels = find(folder, names, "idx1-ubyte");
    if (!images && !labels) return false;
    require(images && labels,
            fmt::format("{}: has no {} next to it", (images ? *images : *labels).string(),
                        images ? "labels (idx1-ubyte)" : "images (idx3-ubyte)"));
    Split split{read_idx(*images, 3), read_idx(*labels, 1)};
    require(split.images.size[0] == split.labels.size[0],
            fmt::format("{} has {} images but {} has {} labels", images->string(),
                        split.images.size[0], labels->string(), split.labels.size[0]));
    splits_.push_back(std::move(split));
    return true;
  }

  void check_test_split() const {
    const Bytes& labels = splits_[1].labels.values;
    for (std::size_t row = 0; row < labels.size(); ++row)
      require(labels[row] < classes_.size(),
              fmt::format("{}, row {}: label {} is out of range: the training labels end at {}",
                          splits_[1].labels.path.string(), row, labels[row], classes_.size() - 1));
  }

  std::vector<Split> splits_;
  std::vector<std::string> classes_;
};

}  // namespace

std::unique_ptr<Source> open_idx(const fs::path& folder) {
  require_folder(folder);
  return std::make_unique<IdxFiles>(folder);
}

}  // namespace lockstep::pack
