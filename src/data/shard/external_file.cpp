#include "data/shard/shard_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "data/chunked/chunked_images.hpp"
#include "data/external/chosen_sets.hpp"
#include "data/shard/rows.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/shard/data_set.hpp"

namespace lockstep::data {
namespace {

constexpr hsize_t longest_external_side = 65535;
constexpr std::size_t usual_channels = 4;

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

/// What stands for no data; a validation set has its training set's.
std::optional<float> no_data_of(const ExternalSpec& spec, const std::filesystem::path& path) {
  if (spec.like != nullptr) return spec.like->no_data;
  if (spec.no_data.empty() || spec.no_data == "none") return std::nullopt;
  const std::optional<double> number = real_number(spec.no_data);
  if (!number || std::isinf(static_cast<float>(*number)))
    h5::refuse(path,
               fmt::format("data.no-data = {} is neither a number, nan nor none", spec.no_data));
  return static_cast<float>(*number);
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
  std::string scaling = {};  // see say_scaling()

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
  std::vector<std::string>& names = opened.info.classes;
  if (opened.info.task == Task::classes || names.size() == opened.wanted.outputs()) return;
  if (!names.empty())
    opened.doubt = fmt::format("it lists {}, which does not fit its {} {} a row: they have numbers",
                               counted(names.size(), "name"), opened.wanted.outputs(),
                               choice_name(opened.info.task));
  names.clear();
}

/// One of the data sets whose channels are the images'.
Images open_images(hid_t file, const ShardFile& opened, const StoredSet& set,
                   const ExternalSpec& spec) {
  const std::filesystem::path& path = opened.path;
  Images images;
  h5::Item item = h5::Item::data_set(file, path, set.name);
  h5::Data data = item.take_data();
  if (set.shape[0] == 0) require_whole(path, data.get());  // which may say why
  PixelForm& form = images.form = form_of(set, path, spec);
  Sources sources = require_whole(path, data.get());
  const h5::Type type(H5Dget_type(data.get()));
  const std::optional<Number> number = number_of(type.get());
  if (!number)
    item.refuse(
        fmt::format("holds numbers of {} bytes, which cannot be read", H5Tget_size(type.get())));
  form.number = *number;
  form.no_data = opened.info.no_data;
  if (form.no_data && !may_be(form.number, static_cast<double>(*form.no_data)))
    item.refuse(fmt::format("holds {}, which cannot be data.no-data = {}", name_of(form.number),
                            say_no_data(opened.info)));
  if (spec.no_data != "none") form.take_missing(missing_values(data.get()));
  images.scaling = say_scaling(data.get());
  std::uint64_t offset = 0;
  const std::size_t row_bytes = form.stored_bytes(), rows = set.shape[0];
  if (H5Tequal(type.get(), memory_type(form.number)) > 0 && lies_in_one_piece(data.get(), offset)) {
    require(rows < (std::uint64_t{1} << 62) / row_bytes,
            fmt::format("{}: is truncated", path.string()));
    images.bytes = std::make_unique<FileBytes>(path, offset, rows * row_bytes, false);
  } else {
    images.stored =
        std::make_unique<StoredImages>(path, std::move(data), std::move(sources), form, rows);
  }
  return images;
}

void read_external_labels(ShardFile& opened, const ChosenSets& sets, hid_t file,
                          const ExternalSpec& spec) {
  opened.labels_elsewhere = static_cast<bool>(sets.labels_file);
  opened.info.classes = read_classes(file, opened.path, sets);
  const hid_t labels_file = sets.labels_file ? sets.labels_file.get() : file;
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
}

/// `parts` get the data sets of images, of one size.
ShardFile open_data(const std::filesystem::path& path, const ExternalSpec& spec,
                    std::vector<Images>& parts) {
  const h5::Session session;
  ShardFile opened;
  opened.path = path;
  opened.stamp = stamp_of(path);
  const h5::File file = open_hdf5(path);
  refuse_matlab(path);
  const ChosenSets sets = choose_sets(file.get(), path, spec);
  opened.info.no_data = no_data_of(spec, path);
  parts.push_back(open_images(file.get(), opened, sets.images, spec));
  opened.set_names = {'/' + sets.images.name, '/' + sets.labels.name};
  DataSetInfo& info = opened.info;
  info.rows = sets.images.shape[0];
  info.height = parts[0].form.height;
  info.width = parts[0].form.width;
  for (const StoredSet& more : sets.more_images) {
    parts.push_back(open_images(file.get(), opened, more, spec));
    opened.set_names[0] += ",/" + more.name;
    const PixelForm& form = parts.back().form;
    if (form.height != info.height || form.width != info.width)
      h5::refuse(path, fmt::format("{} has images of {} x {} pixels, {} of {} x {}",
                                   shape_text(more), form.height, form.width,
                                   shape_text(sets.images), info.height, info.width));
  }
  for (const Images& part : parts) {
    info.channels += part.form.channels;
    opened.scaling += part.scaling;
  }
  read_external_labels(opened, sets, file.get(), spec);
  if (info.channels > most_channels)
    h5::refuse(path, fmt::format("{}: images have at most {} channels, not {}", opened.sets,
                                 most_channels, info.channels));
  StoredSet names;
  if (describe(file.get(), channels_item, names);
      names.texts && names.shape == std::vector<hsize_t>{info.channels})
    info.channel_names = read_channel_names(file.get(), path, info.channels);
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

/// The smallest element that holds those of two kinds.
Element joined(Element a, Element b) {
  if (a == b) return a;
  if (std::max(a, b) <= Element::i16 && std::min(a, b) == Element::u8) return std::max(a, b);
  return Element::f32;
}

/// What the file's numbers become, where no one has said it.
void choose_element(ShardFile& opened, const std::vector<Images>& parts) {
  const Images& images = parts[0];
  const Number number = images.form.number;
  opened.info.element = element_for(number);
  for (const Images& part : parts)
    opened.info.element = joined(opened.info.element, element_for(part.form.number));
  if (parts.size() > 1) return;
  // These kinds of numbers often hold what are 256 levels, by chance or by habit.
  if (!is_float(opened.info.element) || images.form.no_data) return;
  const std::optional<Levels> levels = find_levels(rows_of(opened, images));
  if (!levels) return;
  opened.info.element = Element::u8;
  opened.only_levels = is_float(number);
  if (opened.only_levels) opened.levels = levels;
}

void decide_element(ShardFile& opened, const std::vector<Images>& parts, const ExternalSpec& spec,
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
    choose_element(opened, parts);
  }
  const Element element = opened.info.element;
  if (element != Element::u8 && spec.range != "auto")
    h5::refuse(opened.path, fmt::format("data.range = {} is about floats that become uint8, but "
                                        "its numbers become {}",
                                        spec.range, choice_name(element)));
  for (const Images& part : parts) {
    const Number number = part.form.number;
    if (part.form.no_data && element == Element::u8 && number != Number::u8)
      h5::refuse(opened.path, fmt::format("its {} become levels of uint8, of which none stands for "
                                          "no data (data.no-data = {})",
                                          name_of(number), say_no_data(opened.info)));
    if (parts.size() > 1 && element == Element::u8 && is_float(number))
      h5::refuse(opened.path, "floats of several data sets do not become levels of uint8");
    if (!may_become(number, element))
      h5::refuse(opened.path,
                 fmt::format("its {} cannot become {}", name_of(number), choice_name(element)));
  }
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
  if (!judged.doubt.empty()) opened.doubt = judged.doubt;
}

/// "float64, rounded to float32"; empty where the numbers are the elements, or always were uint8.
std::string say_element(Number number, Element element) {
  if (number == Number::f64 && element == Element::f32) return "float64, rounded to float32";
  if (element == Element::u8) return "";
  const std::string stored = name_of(number), made = choice_name(element);
  return stored == made ? made : fmt::format("{} as {}", stored, made);
}

/// The place of a channel that data.channels names.
std::size_t find_channel(const ShardFile& opened, const std::string& name) {
  const DataSetInfo& info = opened.info;
  const auto found = std::find(info.channel_names.begin(), info.channel_names.end(), name);
  if (found != info.channel_names.end())
    return static_cast<std::size_t>(found - info.channel_names.begin());
  const auto number = whole_number<std::uint64_t>(name);
  if (!number || *number >= info.channels)
    h5::refuse(opened.path,
               fmt::format("data.channels = {}: there is no such channel; there are 0 to {}{}",
                           name, info.channels - 1,
                           info.channel_names.empty()
                               ? std::string()
                               : fmt::format(" ({})", join(info.channel_names, ", "))));
  return *number;
}

/// Chooses and orders the channels as asked.
std::vector<PickedRows::Pick> pick_channels(ShardFile& opened, const std::vector<Images>& parts,
                                            const std::string& asked) {
  std::vector<PickedRows::Pick> all, picks;
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (std::size_t c = 0; c < parts[p].form.channels; ++c) all.push_back({p, c});
  if (asked.empty()) return all;
  std::vector<std::size_t> taken;
  std::vector<std::string> names;
  for (const std::string& name : listed(asked)) {
    const std::size_t channel = find_channel(opened, name);
    if (std::find(taken.begin(), taken.end(), channel) != taken.end())
      h5::refuse(opened.path, fmt::format("data.channels = {} names one twice", asked));
    taken.push_back(channel);
    picks.push_back(all[channel]);
    if (!opened.info.channel_names.empty()) names.push_back(opened.info.channel_names[channel]);
  }
  opened.sets += fmt::format("; channels {} of {}", asked, all.size());
  opened.info.channels = picks.size();
  opened.info.channel_names = names;
  return picks;
}

std::unique_ptr<Rows> rows_from(Images& images, BlockCache& cache) {
  if (!images.stored)
    return std::make_unique<ContiguousRows>(std::move(images.bytes), images.form, RowChecksums());
  images.stored->set_form(images.form);
  return std::make_unique<ChunkedRows>(std::move(images.stored), cache, RowChecksums());
}

}  // namespace

ShardFile open_external(const std::filesystem::path& path, const ExternalSpec& spec,
                        const ShardFile* first, BlockCache& cache) {
  std::vector<Images> parts;  // which close what they hold under their own Session
  ShardFile opened = open_data(path, with_task(spec, first, path), parts);
  decide_element(opened, parts, spec, first);
  judge(opened, parts[0], spec);
  std::vector<std::string> said;
  std::vector<std::unique_ptr<Rows>> rows;
  const auto picks = pick_channels(opened, parts, spec.channels);
  for (Images& part : parts) {
    PixelForm& form = part.form;
    form.element = opened.info.element;
    form.only_levels = opened.only_levels;
    form.low = opened.levels->low;
    form.high = opened.levels->high;
    const std::string numbers = say_element(form.number, form.element);
    if (!numbers.empty() && std::find(said.begin(), said.end(), numbers) == said.end())
      said.push_back(numbers);
    rows.push_back(rows_from(part, cache));
  }
  if (!said.empty()) opened.sets += "; the images are " + join(said, ", ");
  opened.sets += opened.scaling;
  opened.rows = rows.size() == 1 && spec.channels.empty()
                    ? std::move(rows[0])
                    : std::make_unique<PickedRows>(std::move(rows), picks, opened.info.element);
  return opened;
}

}  // namespace lockstep::data
