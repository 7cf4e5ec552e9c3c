#include "data/shard/shard_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "data/chunked/chunked_images.hpp"
#include "data/external/chosen_sets.hpp"
#include "data/shard/rows.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"

namespace lockstep::data {
namespace {

constexpr hsize_t longest_external_side = 65535;
constexpr std::size_t usual_channels = 4;

/// IEEE's float of 16 bits, of any byte order. Others of that size are widened by HDF5.
bool is_half(hid_t type) {
  std::size_t sign = 0, exponent = 0, exponent_bits = 0, fraction = 0, fraction_bits = 0;
  return H5Tget_size(type) == 2 && H5Tget_ebias(type) == 15 && H5Tget_precision(type) == 16 &&
         H5Tget_norm(type) == H5T_NORM_IMPLIED &&
         H5Tget_fields(type, &sign, &exponent, &exponent_bits, &fraction, &fraction_bits) >= 0 &&
         sign == 15 && exponent == 10 && exponent_bits == 5 && fraction == 0 && fraction_bits == 10;
}

Number number_of(hid_t type, const h5::Item& item) {
  const std::size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) {
    if (is_half(type)) return Number::f16;
    if (bytes <= 4) return Number::f32;
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

/// Whether the second of four dimensions holds the channels (true) or the last (false): the one
/// that has a usual number of them. If none has, the one that is smaller than both sides.
std::optional<bool> are_channels_first(const std::vector<hsize_t>& s) {
  bool first = s[1] <= usual_channels, last = s[3] <= usual_channels;
  if (!first && !last) {
    first = s[1] <= most_channels && s[1] < std::min(s[2], s[3]);
    last = s[3] <= most_channels && s[3] < std::min(s[1], s[2]);
  }
  return first == last ? std::nullopt : std::optional(first);
}

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
  const std::optional<bool> first = are_channels_first(s);
  if (spec.layout == "auto" && !first) {
    h5::refuse(path, fmt::format("{}: cannot tell which dimension holds the channels; set it "
                                 "with --data.layout nhwc (the last) or nchw (the second)",
                                 shape_text(images)));
  }
  form.channels_first = spec.layout == "nchw" || (spec.layout == "auto" && *first);
  form.channels = form.channels_first ? s[1] : s[3];
  form.height = form.channels_first ? s[2] : s[1];
  form.width = form.channels_first ? s[3] : s[2];
  if (form.channels > most_channels)
    h5::refuse(path, fmt::format("{}: images have at most {} channels", shape_text(images),
                                 most_channels));
  return form;
}

/// MATLAB stores arrays with their dimensions reversed: each image would be turned over.
void refuse_matlab(const std::filesystem::path& path) {
  constexpr std::string_view sign = "MATLAB 7.3";
  std::string begin(sign.size(), '\0');
  std::ifstream(path, std::ios::binary)
      .read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (begin == sign)
    h5::refuse(path,
               "is a MATLAB 7.3 file, which holds arrays with their dimensions reversed: images "
               "would be transposed. Write it again, with Python for example: h5py reads the same "
               "file, and its images.transpose(0, 3, 2, 1) are [rows, height, width, channels]");
}

/// The names of the classes, where a data set of texts lists them. One with a text for each row,
/// some of them again and again, holds labels.
std::vector<std::string> read_classes(hid_t file, const std::filesystem::path& path,
                                      const ChosenSets& sets) {
  for (const char* name : {"classes", "class_names", "label_names", "list_classes"}) {
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0) continue;
    const h5::Data data(H5Dopen2(file, name, H5P_DEFAULT));
    if (!data) continue;
    const h5::Type type(H5Dget_type(data.get()));
    if (H5Tget_class(type.get()) != H5T_STRING) continue;
    const Sources sources = require_whole(path, data.get());  // open while they are read
    std::vector<std::string> names = h5::Item::data_set(file, path, name).read_strings();
    std::vector<std::string> sorted = names;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice == sorted.end()) return names;
    if (names.size() != sets.images.shape[0])
      h5::refuse(path, fmt::format("/{} names the class '{}' twice", name, *twice));
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

/// The task of a data set's first file, or training set, is that of the others.
ExternalSpec with_task(ExternalSpec spec, const ShardFile* first,
                       const std::filesystem::path& path) {
  const DataSetInfo* other = first != nullptr ? &first->info : spec.like;
  if (other == nullptr) return spec;
  const std::string is_of = first != nullptr ? first->path.string() + " is" : "the training is";
  if (spec.task && *spec.task != other->task)
    h5::refuse(path, fmt::format("data.task = {}, but {} of {}", choice_name(*spec.task), is_of,
                                 choice_name(other->task)));
  spec.task = other->task;
  return spec;
}

/// Names that are not one for each label or value say nothing about them.
void keep_names_of_outputs(ShardFile& opened) {
  if (opened.info.task == Task::classes) return;
  if (opened.info.classes.size() != opened.wanted.outputs()) opened.info.classes.clear();
}

ShardFile open_data(const std::filesystem::path& path, const ExternalSpec& spec, Images& images) {
  const h5::Session session;
  ShardFile opened;
  opened.path = path;
  opened.stamp = stamp_of(path);
  const h5::File file = open_hdf5(path);
  refuse_matlab(path);
  const ChosenSets sets = choose_sets(file.get(), path, spec);
  opened.labels_elsewhere = static_cast<bool>(sets.labels_file);
  opened.set_names = {'/' + sets.images.name, '/' + sets.labels.name};
  h5::Item item = h5::Item::data_set(file.get(), path, sets.images.name);
  h5::Data data = item.take_data();
  if (sets.images.shape[0] == 0) require_whole(path, data.get());  // which may say why
  images.form = form_of(sets.images, path, spec);
  Sources sources = require_whole(path, data.get());
  const h5::Type type(H5Dget_type(data.get()));
  PixelForm& form = images.form;
  form.number = number_of(type.get(), item);
  form.take_missing(missing_values(data.get()));
  opened.info.rows = sets.images.shape[0];
  opened.info.height = form.height;
  opened.info.width = form.width;
  opened.info.channels = form.channels;
  opened.info.classes = read_classes(file.get(), path, sets);
  const hid_t labels_file = sets.labels_file ? sets.labels_file.get() : file.get();
  if (opened.info.classes.empty())
    opened.info.classes = read_classes(labels_file, sets.labels_path, sets);
  ExternalLabels labels = read_labels(labels_file, sets, spec);
  opened.sets = sets_text(sets, labels);
  opened.info.task = labels.wanted.task();
  opened.wanted = std::move(labels.wanted);
  keep_names_of_outputs(opened);
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
    images.stored = std::make_unique<StoredImages>(path, std::move(data), std::move(sources), form,
                                                   opened.info.rows);
  }
  return opened;
}

std::optional<Levels> given_levels(const ExternalSpec& spec) {
  if (spec.range == "auto") return std::nullopt;
  return Levels{spec.range == "-1-1" ? -1.0 : 0.0, spec.range == "0-255" ? 255.0 : 1.0};
}

FloatRows rows_of(const ShardFile& opened, const Images& images) {
  return {.path = opened.path,
          .form = images.form,
          .rows = opened.info.rows,
          .block_rows = images.stored ? images.stored->block_rows() : 1,
          .read = [&](std::size_t row, auto& to) { images.read_numbers(row, to); }};
}

/// What the file's numbers become, where no one has said it.
void choose_element(ShardFile& opened, const Images& images) {
  const Number number = images.form.number;
  opened.info.element = element_for(number);
  // These kinds of numbers often hold what are 256 levels, by chance or by habit.
  if (!is_float(opened.info.element)) return;
  const std::optional<Levels> levels = find_levels(rows_of(opened, images));
  if (!levels) return;
  opened.info.element = Element::u8;
  opened.only_levels = is_float(number);
  if (opened.only_levels) opened.levels = levels;
}

void decide_element(ShardFile& opened, const Images& images, const ExternalSpec& spec,
                    const ShardFile* first) {
  if (first != nullptr) {
    opened.info.element = first->info.element;
    opened.only_levels = first->only_levels;
    opened.levels = first->levels;
  } else if (spec.like != nullptr) {
    opened.info.element = spec.like->element;
    if (spec.element != "auto" && spec.element != choice_name(spec.like->element))
      h5::refuse(opened.path, fmt::format("data.element = {}, but the network takes {}",
                                          spec.element, choice_name(spec.like->element)));
  } else if (spec.element != "auto") {
    opened.info.element = parse_choice<Element>(spec.element, "data.element");
  } else if (spec.range == "auto") {
    choose_element(opened, images);
  }
  const Element element = opened.info.element;
  if (element != Element::u8 && spec.range != "auto")
    h5::refuse(opened.path, fmt::format("data.range = {} is about floats that become uint8, but "
                                        "its numbers become {}",
                                        spec.range, choice_name(element)));
  if (!may_become(images.form.number, element))
    h5::refuse(opened.path, fmt::format("its {} cannot become {}", name_of(images.form.number),
                                        choice_name(element)));
}

/// Which levels floats become that have no levels yet.
void judge(ShardFile& opened, const Images& images, const ExternalSpec& spec) {
  if (opened.info.element != Element::u8 || !is_float(images.form.number)) {
    opened.levels = Levels();
    return;
  }
  if (opened.only_levels) return;
  const JudgedLevels judged =
      judge_levels(rows_of(opened, images), opened.levels ? opened.levels : given_levels(spec));
  opened.levels = judged.levels;
  opened.doubt = judged.doubt;
}

/// "float64, rounded to float32"; empty where the numbers are the elements, or always were uint8.
std::string say_element(Number number, Element element) {
  if (number == Number::f64 && element == Element::f32) return "float64, rounded to float32";
  if (element == Element::u8) return "";
  const std::string stored = name_of(number), made = choice_name(element);
  return stored == made ? made : fmt::format("{} as {}", stored, made);
}

}  // namespace

ShardFile open_external(const std::filesystem::path& path, const ExternalSpec& spec,
                        const ShardFile* first, BlockCache& cache) {
  Images images;  // closes what it holds under its own Session
  ShardFile opened = open_data(path, with_task(spec, first, path), images);
  decide_element(opened, images, spec, first);
  judge(opened, images, spec);
  PixelForm& form = images.form;
  form.element = opened.info.element;
  form.only_levels = opened.only_levels;
  form.low = opened.levels->low;
  form.high = opened.levels->high;
  if (const std::string numbers = say_element(form.number, form.element); !numbers.empty())
    opened.sets += "; the images are " + numbers;
  if (images.stored) {
    images.stored->set_form(form);
    opened.rows = std::make_unique<ChunkedRows>(std::move(images.stored), cache, RowChecksums());
  } else {
    opened.rows = std::make_unique<ContiguousRows>(std::move(images.bytes), form, RowChecksums());
  }
  return opened;
}

}  // namespace lockstep::data
