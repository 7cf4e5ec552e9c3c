#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/image/image.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

/// Rows of a training set and, after them, of a validation set.
class Shards final : public Source {
 public:
  Shards(const fs::path& training, const fs::path& validation, const SourceSpec& spec) {
    sets_.reserve(2);
    sets_.push_back({training, data::DataSet(training, spec.external)});
    const std::string setting = data::first_setting(spec.external);
    require(sets_[0].rows.external() || !validation.empty() || setting.empty(),
            fmt::format("{} would have no effect: {} holds shards", setting, training.string()));
    remark(sets_[0]);
    if (const std::string order = sets_[0].rows.say_order(); !order.empty())
      remarks_.push_back(order);
    if (validation.empty()) return;
    data::ExternalSpec external = spec.validation_external;
    external.like = &sets_[0].rows.info();
    sets_.push_back({validation, data::DataSet(validation, external)});
    remark(sets_[1]);
    const data::DataSetInfo &first = sets_[0].rows.info(), &second = sets_[1].rows.info();
    require(first.classes == second.classes,
            fmt::format("{} has other classes than {}", validation.string(), training.string()));
    require(first.channels == second.channels,
            fmt::format("{} has images of {} channels, {} of {}", validation.string(),
                        second.channels, training.string(), first.channels));
    require(first.element == second.element && first.channel_names == second.channel_names &&
                say_no_data(first) == say_no_data(second),
            fmt::format("{} has channels of {} with names ({}), no data {}, but those of {} are "
                        "{} ({}), {}",
                        validation.string(), choice_name(second.element),
                        join(second.channel_names, ", "), say_no_data(second), training.string(),
                        choice_name(first.element), join(first.channel_names, ", "),
                        say_no_data(first)));
  }

  std::string kind() const override { return "shards"; }
  const std::vector<std::string>& classes() const override { return sets_[0].rows.info().classes; }
  std::size_t rows() const override {
    std::size_t rows = 0;
    for (const Set& set : sets_) rows += set.rows.info().rows;
    return rows;
  }
  std::size_t training_rows() const override { return sets_[0].rows.info().rows; }
  std::size_t native_channels() const override { return sets_[0].rows.info().channels; }

  const data::DataSetInfo* stored() const override { return &sets_[0].rows.info(); }

  std::int32_t label(std::size_t row) const override {
    const SetRow place = find(row);
    return place.set.rows.labels()[place.row];
  }

  data::Task task() const override { return sets_[0].rows.info().task; }
  float wanted(std::size_t row, std::size_t output) const override {
    const SetRow place = find(row);
    return place.set.rows.wanted(place.row, output);
  }

  std::string name(std::size_t row) const override {
    const SetRow place = find(row);
    return fmt::format("{}, row {}", place.set.path.string(), place.row);
  }

  data::Image read(std::size_t row) const override {
    const SetRow place = find(row);
    const data::DataSetInfo& info = place.set.rows.info();
    if (info.encoding == data::Encoding::jpeg) return data::decode_image(read_file(row), name(row));
    data::Image image{info.height, info.width, info.channels,
                      std::vector<std::uint8_t>(info.row_bytes()), info.element};
    place.set.rows.read(place.row, image.pixels);
    return image;
  }

  std::string read_file(std::size_t row) const override {
    const SetRow place = find(row);
    if (place.set.rows.info().encoding == data::Encoding::raw) return {};
    std::vector<std::uint8_t> buffer;
    const auto file = place.set.rows.read_jpeg(place.row, buffer);
    return {file.begin(), file.end()};
  }

  std::string file_name(std::size_t row) const override {
    const SetRow place = find(row);
    return place.set.rows.file_name(place.row);
  }
  std::size_t file_name_bytes() const override {
    std::size_t most = 0;
    for (const Set& set : sets_) most = std::max(most, set.rows.file_name_bytes());
    return most;
  }

  /// Rows have no names here. Label and length are all that is known without reading a row.
  std::string fingerprint() const override {
    std::uint32_t hash = 0;
    const auto take = [&](const void* from, std::size_t bytes) {
      hash = crc32c(from, bytes, hash);
    };
    for (const Set& set : sets_) {
      take(set.rows.labels().data(), set.rows.labels().size_bytes());
      for (std::size_t row = 0; row < set.rows.info().rows; ++row) {
        const std::uint64_t bytes = set.rows.row_bytes(row);
        take(&bytes, sizeof bytes);
        for (std::size_t k = 0; k < set.rows.info().wanted_values(); ++k) {
          const float wanted = set.rows.wanted(row, k);
          take(&wanted, sizeof wanted);
        }
      }
      for (const fs::path& file : set.rows.files()) {
        const std::uint64_t changed =
            static_cast<std::uint64_t>(fs::last_write_time(file).time_since_epoch().count());
        take(&changed, sizeof changed);
      }
    }
    for (const std::string& name : classes()) take(name.c_str(), name.size() + 1);
    return fmt::format("{} rows, hash {:08x}", rows(), hash);
  }

 private:
  struct Set {
    fs::path path;
    data::DataSet rows;
  };
  struct SetRow {
    const Set& set;
    std::size_t row;
  };

  void remark(const Set& set) {
    if (const std::string sets = set.rows.say_sets(); !sets.empty())
      remarks_.push_back(fmt::format("{}: {}", set.path.string(), sets));
    for (const std::string& doubt : set.rows.doubts()) remarks_.push_back("warning: " + doubt);
  }

  SetRow find(std::size_t row) const {
    const std::size_t first = training_rows();
    return row < first ? SetRow{sets_[0], row} : SetRow{sets_[1], row - first};
  }

  std::vector<Set> sets_;
};

/// The layout that pack writes: the two sets are in separate folders.
bool holds_train(const fs::path& path) { return fs::is_directory(path / "train"); }

}  // namespace

bool has_shards(const fs::path& folder) {
  std::error_code missing;
  for (fs::directory_iterator at(folder, missing), end; !missing && at != end;
       at.increment(missing))
    if (at->path().extension() == ".h5") return true;
  return false;
}

std::unique_ptr<Source> open_shards(const SourceSpec& spec) {
  const fs::path& path = spec.files[0];
  const bool both = holds_train(path);
  fs::path validation;
  if (!spec.validation_files.empty()) validation = spec.validation_files[0];
  if (validation.empty() && both && fs::is_directory(path / "val")) validation = path / "val";
  return std::make_unique<Shards>(both ? path / "train" : path, validation, spec);
}

}  // namespace lockstep::pack
