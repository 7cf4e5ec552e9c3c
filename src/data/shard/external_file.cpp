#include "data/shard/external_file.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "data/chunked/stored_images.hpp"
#include "data/external/external_labels.hpp"
#include "data/shard/rows/chunked_rows.hpp"
#include "data/shard/rows/contiguous_rows.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"

namespace lockstep::data {
namespace {

constexpr hsize_t longest_external_side = 65535;
constexpr std::size_t most_channels = 4;

StoredSet find_images(hid_t file, const std::filesystem::path& path, const ExternalSpec& spec,
                      const FileContents& contents) {
  std::vector<StoredSet> candidates;
  for (const std::size_t rank : {4u, 3u}) {
    for (const StoredSet& one : contents.numbers)
      if (one.shape.size() == rank && !one.truth) candidates.push_back(one);
    if (!candidates.empty()) break;
  }
  if (!spec.images.empty()) {
    StoredSet found = find_named(file, path, spec.images, "data.images", candidates);
    if (found.truth) h5::refuse(path, fmt::format("{} holds true and false", shape_text(found)));
    if (found.shape.size() != 3 && found.shape.size() != 4)
      h5::refuse(path, fmt::format("{}: images have 4 dimensions (rows, height, width, channels; "
                                   "or channels first), or 3 when they are grey",
                                   shape_text(found)));
    return found;
  }
  const StoredSet* found =
      choose(candidates, contents, {"images", "image", "x", "data", "imgs", "img"});
  if (found != nullptr) return *found;
  if (candidates.size() < 2)
    h5::refuse(path, fmt::format(
                         "is not a shard and holds no images (numbers of 4 dimensions, or 3); make "
                         "shards with 'lockstep pack'. There are: {}",
                         list_text(contents)));
  h5::refuse(path, fmt::format("holds several data sets that may be the images; say which with "
                               "--data.images (and --data.labels): {}",
                               list_text(candidates)));
}

Number number_of(hid_t type, const h5::Item& item) {
  const std::size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) {
    if (bytes <= 4) return Number::f32;  // HDF5 widens half precision
    if (bytes == 8) return Number::f64;
  } else {
    const bool has_sign = H5Tget_sign(type) == H5T_SGN_2;
    if (bytes == 1) return has_sign ? Number::i8 : Number::u8;
    if (bytes == 2) return has_sign ? Number::i16 : Number::u16;
    if (bytes == 4) return has_sign ? Number::i32 : Number::u32;
    if (bytes == 8) return has_sign ? Number::i64 : Number::u64;
  }
  item.refuse(fmt::format("holds numbers of {} bytes, which cannot be read", bytes));
}

bool are_channels(hsize_t extent) { return extent >= 1 && extent <= most_channels; }

PixelForm form_of(const StoredSet& images, const std::filesystem::path& path,
                  const ExternalSpec& spec) {
  const std::vector<hsize_t>& s = images.shape;
  for (std::size_t d = 0; d < s.size(); ++d)
    if (s[d] == 0 || (d > 0 && s[d] > longest_external_side))
      h5::refuse(path, fmt::format("{}: not 1 to {} pixels on each side, or no rows",
                                   shape_text(images), longest_external_side));
  if (s[0] > most_rows)
    h5::refuse(path, fmt::format("{}: at most 2^31 rows are read", shape_text(images)));
  PixelForm form;
  if (s.size() == 3) {
    form.height = s[1];
    form.width = s[2];
    form.channels = 1;
    return form;
  }
  const bool first = are_channels(s[1]), last = are_channels(s[3]);
  if (spec.layout == "auto" && first == last) {
    h5::refuse(path, fmt::format("{}: cannot tell which dimension holds the channels; set it "
                                 "with --data.layout nhwc (the last) or nchw (the second)",
                                 shape_text(images)));
  }
  form.channels_first = spec.layout == "nchw" || (spec.layout == "auto" && first);
  form.channels = form.channels_first ? s[1] : s[3];
  form.height = form.channels_first ? s[2] : s[1];
  form.width = form.channels_first ? s[3] : s[2];
  return form;
}

std::vector<std::string> read_classes(hid_t file, const std::filesystem::path& path) {
  for (const char* name : {"classes", "class_names", "label_names", "list_classes"}) {
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0) continue;
    const h5::Data data(H5Dopen2(file, name, H5P_DEFAULT));
    if (!data) continue;
    const h5::Type type(H5Dget_type(data.get()));
    if (H5Tget_class(type.get()) == H5T_STRING)
      return h5::Item::data_set(file, path, name).read_strings();
  }
  return {};
}

// The images of a file that is being opened, in one of two forms.
struct Images {
  PixelForm form;
  std::unique_ptr<FileBytes> bytes;
  std::unique_ptr<StoredImages> stored;

  void read_numbers(std::size_t row, std::vector<std::uint8_t>& numbers) const {
    if (stored) {
      const std::size_t block = row / stored->block_rows();
      numbers.resize(stored->rows_of(block) * form.stored_bytes());
      stored->decode_stored(block, numbers.data());
    } else {
      numbers.resize(form.stored_bytes());
      bytes->read(row, row * numbers.size(), numbers);
    }
  }
};

ShardFile open_data(const std::filesystem::path& path, const ExternalSpec& spec, Images& images) {
  const h5::Session session;
  ShardFile opened;
  opened.path = path;
  const h5::File file = open_hdf5(path);
  const FileContents contents = look_into(file.get());
  const StoredSet found = find_images(file.get(), path, spec, contents);
  images.form = form_of(found, path, spec);
  h5::Item item = h5::Item::data_set(file.get(), path, found.name);
  h5::Data data = item.take_data();
  const h5::Type type(H5Dget_type(data.get()));
  PixelForm& form = images.form;
  form.number = number_of(type.get(), item);
  opened.info.rows = found.shape[0];
  opened.info.height = form.height;
  opened.info.width = form.width;
  opened.info.channels = form.channels;
  opened.info.classes = read_classes(file.get(), path);
  ExternalLabels labels = read_labels(file.get(), path, spec, contents, found);
  opened.labels = std::move(labels.labels);
  opened.one_hot_classes = labels.classes;
  opened.label_texts = std::move(labels.texts);
  std::uint64_t offset = 0;
  if (H5Tequal(type.get(), memory_type(form.number)) > 0 && lies_in_one_piece(data.get(), offset)) {
    const std::size_t row_bytes = form.stored_bytes();
    require(opened.info.rows < (std::uint64_t{1} << 62) / row_bytes,
            fmt::format("{}: is truncated", path.string()));
    images.bytes = std::make_unique<FileBytes>(path, offset, opened.info.rows * row_bytes, false);
  } else {
    images.stored = std::make_unique<StoredImages>(path, std::move(data), form, opened.info.rows);
  }
  return opened;
}

/// Pixels that were normalised for a network cannot be read: its mean is not in the file.
const char* how_to_mend(double smallest, double largest) {
  if (smallest >= -1.002 && largest <= 1.002) return "for -1 to 1 say --data.range -1-1";
  return smallest < 0 ? "if a mean was subtracted from them, write the pixels without that"
                      : "write them in one of these ranges";
}

Levels judge_levels(const std::filesystem::path& path, const Images& images, std::size_t rows) {
  constexpr std::size_t looks = 8;
  double smallest = 0, largest = 0;
  std::vector<std::uint8_t> numbers;
  for (std::size_t look = 0; look < looks; ++look) {
    images.read_numbers(look * (rows - 1) / (looks - 1), numbers);
    for (std::size_t at = 0; at < numbers.size(); at += images.form.stored_bytes())
      images.form.widen(&numbers[at], smallest, largest);
  }
  if (smallest < -0.002 || largest > 255.5)
    h5::refuse(path, fmt::format("its floats go from {:.4g} to {:.4g}, which are neither 0 to 1 "
                                 "nor 0 to 255; {}",
                                 smallest, largest, how_to_mend(smallest, largest)));
  return {0, largest <= 1.002 ? 1.0 : 255.0};  // allows half a level more
}

Levels find_levels(const std::filesystem::path& path, const ExternalSpec& spec,
                   const Images& images, std::size_t rows) {
  if (!is_float(images.form.number)) return {};
  if (spec.range == "auto") return judge_levels(path, images, rows);
  return {spec.range == "-1-1" ? -1.0 : 0.0, spec.range == "0-255" ? 255.0 : 1.0};
}

}  // namespace

ShardFile open_external(const std::filesystem::path& path, const ExternalSpec& spec,
                        const std::optional<Levels>& levels, BlockCache& cache) {
  Images images;  // closes what it holds under its own Session
  ShardFile opened = open_data(path, spec, images);
  opened.levels = levels ? *levels : find_levels(path, spec, images, opened.info.rows);
  images.form.low = opened.levels->low;
  images.form.high = opened.levels->high;
  if (images.stored) {
    images.stored->set_form(images.form);
    opened.rows = std::make_unique<ChunkedRows>(std::move(images.stored), cache, RowChecksums());
  } else {
    opened.rows =
        std::make_unique<ContiguousRows>(std::move(images.bytes), images.form, RowChecksums());
  }
  return opened;
}

}  // namespace lockstep::data
