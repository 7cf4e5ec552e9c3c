#include "lockstep/data/shard/data_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/bytes/file_bytes.hpp"
#include "data/bytes/row_names.hpp"
#include "data/chunked/block_cache.hpp"
#include "data/image/percentiles.hpp"
#include "data/shard/shard_file.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/element_bytes.hpp"
#include "lockstep/data/image/channel_sums.hpp"
#include "lockstep/data/shard/held_out.hpp"

namespace lockstep::data {
namespace {

// Some rows of a data set, in spans, to judge what must be known before training.
constexpr std::size_t sample_spans = 8, sample_span_rows = 128;

std::vector<std::string> numbered(std::size_t classes) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < classes; ++i) names.push_back(std::to_string(i));
  return names;
}

// A row of the data set as a row of one of its files.
struct PlaceInFile {
  const ShardFile& file;
  std::size_t index;  // of the file
  std::size_t row;
};

}  // namespace

struct DataSet::Impl {
  BlockCache cache;  // outlives the files
  std::vector<ShardFile> files;
  std::vector<std::size_t> first_row;   // of each file in the data set
  mutable std::vector<RowNames> names;  // of each file
  DataSetInfo info;
  std::vector<std::size_t> chosen;  // of all rows in the files; empty: all
  std::vector<std::int32_t> labels;
  WantedRows wanted;
  std::size_t one_hot_classes = 0;  // the most of any file
  std::vector<std::string> doubts;
  bool sorted_texts = false;  // the classes are the labels' texts
  NodeCopier copier;          // stops before the files are closed

  explicit Impl(std::size_t cache_bytes) : cache(cache_bytes) {}

  void open(const std::filesystem::path& path, const ExternalSpec& spec) {
    if (looks_like_shard(path)) return add(open_shard(path, cache));
    const bool first = files.empty();
    if (!first && files.front().labels_elsewhere)
      h5::refuse(path, fmt::format("and {} cannot both have the labels {}, which are those of one "
                                   "file",
                                   files.front().path.string(), spec.labels));
    add(open_external(path, spec, first ? nullptr : &files.front(), cache));
  }

  void add(ShardFile opened) {
    files.push_back(std::move(opened));
    ShardFile& file = files.back();
    check_agreement(files.front(), file);
    require_new(file, std::span(files).first(files.size() - 1));
    if (files.size() == 1) {
      info = file.info;
      info.rows = 0;
    }
    first_row.push_back(info.rows);
    names.emplace_back(file.path);
    info.rows += file.info.rows;
    labels.insert(labels.end(), file.labels.begin(), file.labels.end());
    file.labels = {};
    if (info.task != Task::classes) wanted.append(file.wanted);
    file.wanted = {};
    one_hot_classes = std::max(one_hot_classes, file.one_hot_classes);
    if (!file.doubt.empty() && doubts.empty())
      doubts.push_back(fmt::format("{}: {}", file.path.string(), file.doubt));
  }

  bool external() const { return files.front().external(); }

  // Fills in what other programs' files do not say.
  void complete(const ExternalSpec& spec) {
    if (info.task == Task::classes) {
      sorted_texts = number_texts(files, spec, info, labels);
      name_classes(spec);
    } else {
      name_outputs(spec);
    }
    const auto classes = static_cast<std::int64_t>(info.classes.size());
    const auto wrong = std::find_if(labels.begin(), labels.end(),
                                    [&](std::int32_t label) { return label >= classes; });
    if (wrong != labels.end()) {
      const PlaceInFile at = place(static_cast<std::size_t>(wrong - labels.begin()));
      h5::refuse(at.file.path,
                 fmt::format("row {} has label {}, but there are {} classes (0 to {})", at.row,
                             *wrong, classes, classes - 1));
    }
  }

  // Keeps the part of the rows that is meant.
  void choose_rows(const ExternalSpec& spec) {
    if (spec.part == RowsPart::all) return;
    const std::vector<bool> held = held_out_rows(labels, spec.held_out, spec.seed);
    std::vector<std::int32_t> own;
    for (std::size_t row = 0; row < held.size(); ++row) {
      if (held[row] != (spec.part == RowsPart::held_out)) continue;
      chosen.push_back(row);
      own.push_back(labels[row]);
    }
    require(!chosen.empty(),
            fmt::format("data.held-out = {} of {} leaves no row to hold out: classes have too few "
                        "rows",
                        spec.held_out, files.front().path.string()));
    labels = std::move(own);
    if (info.task != Task::classes) wanted = wanted.picked(chosen);
    info.rows = chosen.size();
  }

  void measure_values(const ExternalSpec& spec) {
    if (info.task != Task::values) return;
    if (spec.like != nullptr) {
      info.target_mean = spec.like->target_mean;
      info.target_stddev = spec.like->target_stddev;
      return;
    }
    TargetMoments moments = measure_targets(wanted);
    info.target_mean = std::move(moments.mean);
    info.target_stddev = std::move(moments.stddev);
  }

  // Of shards without a change of shape, mean and deviation are what they say.
  void normalise(const ExternalSpec& spec) {
    const bool is_like = spec.like != nullptr && spec.like->mean.size() == info.channels;
    if (is_like)
      info.shaping = spec.like->shaping;
    else
      shape_values(spec);
    if (!external() && !info.shaping.any()) return;
    if (is_like) {
      info.mean = spec.like->mean;
      info.stddev = spec.like->stddev;
    } else {
      measure_channels(spec.skips_bad_rows);
    }
  }

  void shape_values(const ExternalSpec& spec) {
    const std::vector<AskedLimits> asked = asked_limits(spec.clip);
    require(asked.size() <= 1 || asked.size() == info.channels,
            fmt::format("data.clip = {} has limits of {} channels, but {} has {}", spec.clip,
                        asked.size(), files.front().path.string(), info.channels));
    require(info.encoding == Encoding::raw || (asked.empty() && spec.curve == Curve::linear),
            fmt::format("{} holds JPEGs: data.clip and data.curve are about the numbers of files",
                        files.front().path.string()));
    if (!asked.empty()) limit_values(spec, asked);
    info.shaping.curve = spec.curve;
  }

  void limit_values(const ExternalSpec& spec, const std::vector<AskedLimits>& asked) {
    std::vector<double> percents{0, 100};
    for (const AskedLimits& one : asked)
      for (const AskedLimit& limit : {one.low, one.high})
        if (limit.is_percentile) percents.push_back(limit.number);
    std::vector<std::vector<double>> found;
    if (percents.size() > 2)
      found = percentiles(info, percents,
                          [&](const auto& use) { look_at_rows(spec.skips_bad_rows, use); });
    std::vector<float>&low = info.shaping.low, &high = info.shaping.high;
    std::size_t next = 2;
    for (std::size_t c = 0; c < info.channels; ++c) {
      if (asked.size() == 1) next = 2;
      const AskedLimits& own = limits_of(asked, c);
      const auto number = [&](const AskedLimit& limit) {
        const double value = limit.is_percentile ? found[next++][c] : limit.number;
        return std::isnan(value) ? 0.0f : static_cast<float>(value);
      };
      low.push_back(number(own.low));
      high.push_back(number(own.high));
      const bool constant = !found.empty() && !(found[0][c] < found[1][c]);
      require(low[c] < high[c] || (low[c] == high[c] && constant),
              fmt::format("{}: data.clip = {} would leave nothing of channel {}: its limits are {} "
                          "and {}",
                          files.front().path.string(), spec.clip, c, low[c], high[c]));
    }
  }

  void name_outputs(const ExternalSpec& spec) {
    const std::size_t outputs = wanted.outputs();
    const auto require_as_many = [&](std::size_t said, const std::string& by) {
      if (said != outputs)
        h5::refuse(files.front().path, fmt::format("has {} {} a row, but {} {}", outputs,
                                                   choice_name(info.task), by, said));
    };
    if (spec.classes > 0) require_as_many(spec.classes, "data.classes =");
    if (spec.like != nullptr) require_as_many(spec.like->classes.size(), "the training has");
    if (!info.classes.empty()) return;
    const std::string& set = files.front().set_names[1];
    if (spec.like != nullptr)
      info.classes = spec.like->classes;
    else if (outputs == 1)
      info.classes = {set.substr(set.rfind('/') + 1)};
    else
      info.classes = numbered(outputs);
  }

  void name_classes(const ExternalSpec& spec) {
    if (spec.like != nullptr && info.classes.empty()) info.classes = spec.like->classes;
    if (spec.classes > 0 && info.classes.size() != spec.classes) {
      require(info.classes.empty() || spec.like != nullptr,
              fmt::format("{} names {}, but data.classes = {}", files.front().path.string(),
                          counted(info.classes.size(), "class"), spec.classes));
      info.classes = numbered(spec.classes);
    }
    if (info.classes.empty()) {
      const std::int32_t largest = *std::max_element(labels.begin(), labels.end());
      if (largest >= 1 << 20)
        h5::refuse(files.front().path,
                   fmt::format("or another file of the data set has label {}: at most 2^20 classes",
                               largest));
      info.classes = numbered(std::max(static_cast<std::size_t>(largest) + 1, one_hot_classes));
      if (spec.like == nullptr) require_likely(largest);
    }
  }

  // A wrong label must not make a network of a million outputs.
  void require_likely(std::int32_t largest) const {
    constexpr std::size_t many = 1000;
    std::vector<bool> there(info.classes.size());
    for (const std::int32_t label : labels) there[static_cast<std::size_t>(label)] = true;
    const auto with_rows = static_cast<std::size_t>(std::count(there.begin(), there.end(), true));
    if (there.size() - with_rows < std::max(many, with_rows)) return;
    const auto row = std::find(labels.begin(), labels.end(), largest) - labels.begin();
    const PlaceInFile at = place(static_cast<std::size_t>(row));
    h5::refuse(at.file.path,
               fmt::format("row {} has label {}, which makes {} classes, but only {} of them have "
                           "rows; if that is right, say --data.classes {}",
                           at.row, largest, there.size(), with_rows, there.size()));
  }

  // Calls `use` with the pixels of at most 1024 rows; of those that it throws BadRow about, too.
  template <class Use>
  void look_at_rows(bool skips_bad_rows, Use&& use) const {
    const bool all = info.rows <= sample_spans * sample_span_rows;
    const std::size_t spans = all ? 1 : sample_spans, length = all ? info.rows : sample_span_rows;
    std::vector<std::uint8_t> image(info.row_bytes());
    for (std::size_t span = 0; span < spans; ++span) {
      const std::size_t first = span * (info.rows - length) / sample_spans;
      for (std::size_t row = first; row < first + length; ++row) {
        const PlaceInFile at = place(row);
        try {
          at.file.rows->read(at.row, labels[row], image);
          require_curve(at, image);
        } catch (const BadRow&) {
          if (!skips_bad_rows) throw;
          continue;
        }
        use(image);
      }
    }
  }

  // Mean and deviation from at most 1024 rows: the same ones on every rank and at every start.
  void measure_channels(bool skips_bad_rows) {
    ChannelSums sums(info.shaping.any() ? shaped_info() : info);
    std::vector<float> values;
    bool found = false;
    look_at_rows(skips_bad_rows, [&](std::span<const std::uint8_t> image) {
      if (info.shaping.any()) image = shape_row(image, values);
      sums.add(image);
      found = true;
    });
    if (!found) h5::refuse(files.front().path, "none of the looked-at rows is whole");
    info.mean = sums.mean();
    info.stddev = sums.stddev();
    if (info.enter_as_bytes()) return;
    for (const std::size_t channel : sums.constant())
      doubts.push_back(fmt::format("{}: channel {} has one value in all looked-at rows",
                                   files.front().path.string(), channel));
  }

  // Shaped values as elements.
  DataSetInfo shaped_info() const {
    DataSetInfo shaped = info;
    shaped.element = Element::f32;
    shaped.shaping = {};
    if (info.no_data) shaped.no_data = std::numeric_limits<float>::quiet_NaN();
    return shaped;
  }
  std::span<const std::uint8_t> shape_row(std::span<const std::uint8_t> image,
                                          std::vector<float>& values) const {
    values.resize(info.row_values());
    for_each_value(info.element, image, [&](std::size_t i, float value) {
      values[i] = stands_for_none(info.no_data, value)
                      ? std::numeric_limits<float>::quiet_NaN()
                      : shaped(info.shaping, i % info.channels, value);
    });
    return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)};
  }

  void require_curve(const PlaceInFile& at, std::span<const std::uint8_t> image) const {
    if (const auto place = find_uncurved(info, image))
      throw BadRow(fmt::format("{}: row {} {}{}", at.file.path.string(), at.row,
                               say_uncurved(info, image, *place), named(at)));
  }

  std::uint32_t hash_labels() const {
    const std::uint32_t hash = crc32c(labels.data(), labels.size() * sizeof(std::int32_t));
    return info.task == Task::classes ? hash : wanted.hash(hash);
  }

  std::uint32_t hash_chosen(std::uint32_t hash) const {
    return chosen.empty() ? hash : crc32c(chosen.data(), chosen.size() * sizeof(std::size_t), hash);
  }

  std::uint32_t hash_rows() const {
    std::uint32_t hash = hash_labels();
    for (const ShardFile& file : files) hash = crc32c(&file.rows_hash, sizeof file.rows_hash, hash);
    return hash_chosen(hash);
  }

  std::string name_of(const PlaceInFile& at) const {
    return at.file.external() ? "" : names[at.index].of(at.row);
  }

  // " (daisy/1.jpg)", where the row's file is known.
  std::string named(const PlaceInFile& at) const {
    const std::string name = name_of(at);
    return name.empty() ? "" : fmt::format(" (it was made from {})", name);
  }

  // A pattern may leave shards out on purpose; see also list_shards().
  void doubt_if_missing(const std::filesystem::path& path,
                        std::span<const std::filesystem::path> given) {
    if (const std::string missing = say_missing_parts(given); !missing.empty())
      doubts.push_back(fmt::format("{}: {}", path.string(), missing));
  }

  // Runs `read`, which reads the row there. A message about a broken row names its file.
  template <class Read>
  auto naming(const PlaceInFile& at, Read&& read) const {
    try {
      return read();
    } catch (const BadRow& error) {
      throw BadRow(error.what() + named(at));
    }
  }

  PlaceInFile place(std::size_t row) const {
    check(row < info.rows, "a row of the data set");
    if (!chosen.empty()) row = chosen[row];
    const auto after = std::upper_bound(first_row.begin(), first_row.end(), row);
    const auto index = static_cast<std::size_t>(after - first_row.begin()) - 1;
    return {files[index], index, row - first_row[index]};
  }
};

DataSet::DataSet(const std::filesystem::path& path, const ExternalSpec& external)
    : impl_(std::make_unique<Impl>(external.cache_bytes)) {
  const std::vector<std::filesystem::path> files = list_shards(path);
  allow_open_files(files.size());  // every file stays open
  for (const std::filesystem::path& file : files) impl_->open(file, external);
  if (files.size() > 1) impl_->doubt_if_missing(path, files);
  if (impl_->external()) impl_->complete(external);
  impl_->choose_rows(external);
  impl_->measure_values(external);
  impl_->normalise(external);
  // Classes of a validation set are compared with those of its training set instead.
  const std::size_t there = impl_->info.classes.size();
  require(impl_->external() || external.classes == 0 || external.classes == there ||
              external.like != nullptr,
          fmt::format("data.classes = {} contradicts {}, which has {}", external.classes,
                      path.string(), counted(there, "class")));
  impl_->info.rows_hash = impl_->hash_rows();
}

DataSet::~DataSet() = default;
DataSet::DataSet(DataSet&&) noexcept = default;

const DataSetInfo& DataSet::info() const { return impl_->info; }

std::span<const std::int32_t> DataSet::labels() const { return impl_->labels; }

float DataSet::wanted(std::size_t row, std::size_t output) const {
  return impl_->wanted.of(row, output);
}

std::vector<std::filesystem::path> DataSet::files() const {
  std::vector<std::filesystem::path> paths;
  for (const ShardFile& file : impl_->files) paths.push_back(file.path);
  return paths;
}

std::string DataSet::fingerprint() const {
  std::uint32_t hash = impl_->hash_labels();
  for (const ShardFile& file : impl_->files) {
    std::string text = fmt::format("{} {:08x}", file.path.filename().string(), file.rows_hash);
    if (const FileStamp stamp = stamp_of(file.path); file.external())
      text += fmt::format(" {} {}", stamp.bytes, stamp.modified_ns);
    hash = crc32c(text.data(), text.size(), hash);
  }
  hash = impl_->hash_chosen(hash);
  return fmt::format("{} rows, hash {:08x}", impl_->info.rows, hash);
}

bool DataSet::external() const { return impl_->external(); }

std::string DataSet::say_order() const {
  if (!impl_->sorted_texts) return "";
  return "the labels are texts; " + classes_in_order(impl_->info.classes);
}

std::string DataSet::say_sets() const {
  const std::size_t count = impl_->files.size();
  const std::string& sets = impl_->files.front().sets;
  return count < 2 || sets.empty() ? sets
                                   : fmt::format("{}, in the first of {} files", sets, count);
}

const std::vector<std::string>& DataSet::doubts() const { return impl_->doubts; }

std::string DataSet::say_share_of_no_data() const {
  const DataSetInfo& info = impl_->info;
  if (!info.no_data) return "";
  ChannelSums sums(info);
  std::size_t rows = 0, empty = 0;
  impl_->look_at_rows(true, [&](std::span<const std::uint8_t> image) {
    const std::uint64_t before = sums.values();
    sums.add(image);
    empty += sums.values() == before;
    ++rows;
  });
  const double all = static_cast<double>(rows) * static_cast<double>(info.row_values());
  return fmt::format("no data is {}: {:.3g} % of the values of {}; {} of these {} nothing else",
                     say_no_data(info), 100 * (1 - static_cast<double>(sums.values()) / all),
                     counted(rows, "row"), empty, empty == 1 ? "is" : "are");
}

Storage DataSet::storage() const {
  Storage storage;
  storage.layout = "contiguous";
  storage.cache_bytes = impl_->cache.limit_bytes();
  storage.checksums = !impl_->external();
  for (const ShardFile& file : impl_->files) file.rows->describe(storage);
  return storage;
}

std::uint64_t DataSet::row_bytes(std::size_t row) const {
  const PlaceInFile at = impl_->place(row);
  return at.file.rows->bytes(at.row);
}

void DataSet::read(std::size_t row, std::span<std::uint8_t> image) const {
  check(impl_->info.encoding == Encoding::raw, "rows of pixels");
  check(image.size() == impl_->info.row_bytes(), "an image buffer of one row");
  const PlaceInFile at = impl_->place(row);
  impl_->naming(at, [&] { at.file.rows->read(at.row, impl_->labels[row], image); });
  impl_->require_curve(at, image);
}

std::span<const std::uint8_t> DataSet::view(std::size_t row,
                                            std::vector<std::uint8_t>& buffer) const {
  const PlaceInFile at = impl_->place(row);
  const auto mapped =
      impl_->naming(at, [&] { return at.file.rows->in_place(at.row, impl_->labels[row]); });
  if (!mapped.empty()) impl_->require_curve(at, mapped);
  if (!mapped.empty()) return mapped;
  const std::size_t bytes = impl_->info.row_bytes();
  if (buffer.size() < bytes) buffer.resize(bytes);
  const auto image = std::span(buffer).first(bytes);
  impl_->naming(at, [&] { at.file.rows->read(at.row, impl_->labels[row], image); });
  impl_->require_curve(at, image);
  return image;
}

void DataSet::map() {
  for (const ShardFile& file : impl_->files)
    for (FileBytes* bytes : file.rows->files()) bytes->map();
}

NodeCopy DataSet::copy_to(const std::filesystem::path& directory, std::span<const RowRange> rows,
                          std::uint64_t promised) {
  std::vector<FileBytes*> files;
  std::vector<std::size_t> first_of;  // of each shard, in `files`
  for (const ShardFile& file : impl_->files) {
    const std::vector<FileBytes*> pieces = file.rows->files();
    first_of.push_back(files.size());
    files.insert(files.end(), pieces.begin(), pieces.end());
    if (pieces.empty())
      h5::refuse(file.path,
                 "is not contiguous, and only contiguous data can be copied to nodes (data.stage); "
                 "'lockstep pack --repack' turns it into shards");
  }
  std::vector<NodeCopier::FilePart> parts;
  for (const RowRange& range : rows) {
    for (std::size_t done = 0; done < range.rows;) {
      const PlaceInFile at = impl_->place(range.first + done);
      const std::size_t in_file = std::min(range.rows - done, at.file.info.rows - at.row),
                        count = impl_->chosen.empty() ? in_file : 1;
      const Rows& stored = *at.file.rows;
      const std::size_t first = first_of[at.index];
      const std::size_t end =
          at.index + 1 < first_of.size() ? first_of[at.index + 1] : files.size();
      for (std::size_t file = first; file < end; ++file)
        parts.push_back({file,
                         {stored.range(at.row, file - first).begin,
                          stored.range(at.row + count - 1, file - first).end}});
      done += count;
    }
  }
  return impl_->copier.begin(files, directory, parts, promised);
}

double DataSet::copied() const { return impl_->copier.share(); }

bool DataSet::prepare(std::size_t row) const {
  const PlaceInFile at = impl_->place(row);
  return at.file.rows->prepare(at.row);
}

std::array<std::size_t, 2> DataSet::size(std::size_t row) const {
  check(impl_->info.encoding == Encoding::jpeg, "rows that are JPEG files");
  const PlaceInFile at = impl_->place(row);
  return at.file.rows->size(at.row);
}

std::span<const std::uint8_t> DataSet::read_jpeg(std::size_t row,
                                                 std::vector<std::uint8_t>& buffer) const {
  check(impl_->info.encoding == Encoding::jpeg, "rows that are JPEG files");
  const PlaceInFile at = impl_->place(row);
  const std::size_t bytes = at.file.rows->bytes(at.row);
  if (buffer.size() < bytes) buffer.resize(bytes);
  const auto file = std::span(buffer).first(bytes);
  impl_->naming(at, [&] { at.file.rows->read(at.row, impl_->labels[row], file); });
  return file;
}

std::string DataSet::file_name(std::size_t row) const { return impl_->name_of(impl_->place(row)); }

std::size_t DataSet::file_name_bytes() const {
  std::size_t most = 0;
  for (std::size_t file = 0; file < impl_->files.size(); ++file)
    if (!impl_->files[file].external()) most = std::max(most, impl_->names[file].bytes());
  return most;
}

void DataSet::refuse_row(std::size_t row, std::string_view what) const {
  const PlaceInFile at = impl_->place(row);
  throw BadRow(
      fmt::format("{}: row {}: {}{}", at.file.path.string(), at.row, what, impl_->named(at)));
}

}  // namespace lockstep::data
