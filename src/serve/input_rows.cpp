#include "lockstep/serve/input_rows.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/work_folder.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "serve/predictor.hpp"
#include "serve/stored_form.hpp"

namespace lockstep::serve {

namespace {

class PackedRows final : public InputRows {
 public:
  PackedRows(data::DataSet rows, const data::AugmentSpec& spec, bool labelled)
      : rows_(std::move(rows)), made_(rows_, spec), labelled_(labelled) {}

  const data::DataSetInfo& info() const override { return made_.info(); }
  std::int32_t label(std::size_t row) const override { return labelled_ ? made_.label(row) : -1; }
  data::MakeRow row_maker() const override { return made_.row_maker(); }
  bool prepare(std::size_t row) const override { return made_.prepare(row); }
  std::size_t usual_readahead(const data::LoaderSpec& loader) const override {
    return made_.usual_readahead(loader);
  }
  std::string name(std::size_t row) const override { return rows_.file_name(row); }
  std::size_t name_bytes() const override { return rows_.file_name_bytes(); }
  bool labelled() const override { return labelled_; }

  std::string fingerprint() const override { return rows_.fingerprint(); }

 private:
  const data::DataSet rows_;
  data::DataSetRows made_;
  bool labelled_;
};

}  // namespace

std::unique_ptr<InputRows> packed_rows(data::DataSet rows, const data::AugmentSpec& spec,
                                       bool labelled) {
  return std::make_unique<PackedRows>(std::move(rows), spec, labelled);
}

StoredForm stored_as(const data::ImageForm& form, const model::Preparation& preparation,
                     const data::DataSetInfo& input, std::size_t rows) {
  require(data::takes_files(input) && (input.has_plain_bytes() || !form.jpeg),
          fmt::format("the network takes images of {} of {}; {}",
                      counted(input.channels, "channel"), say_values(input),
                      form.jpeg ? "those of JPEGs (--jpeg) are uint8"
                                : "files have 1 or 3 of uint8 or uint16: only rows of HDF5 files "
                                  "can be predicted and evaluated"));
  data::DataSetInfo stored = input;
  stored.rows = rows;
  stored.encoding = form.jpeg ? data::Encoding::jpeg : data::Encoding::raw;
  if (form.jpeg) stored.height = stored.width = 0;
  if (form.height > 0) {
    stored.height = form.height;
    stored.width = form.width;
  }
  const bool fits = stored.height == input.height && stored.width == input.width;
  require(
      form.jpeg || fits || preparation.fit != model::Resized::jpegs_only,
      fmt::format("--resize makes images of {0} x {1}, but the network takes {2} x {3} (height x "
                  "width): give --resize {2}x{3}",
                  stored.height, stored.width, input.height, input.width));
  const data::AugmentSpec augment = model::evaluation_augment(preparation, input, stored);
  data::delivered(stored, augment, "a set of this form");
  return {std::move(stored), augment};
}

namespace {

namespace fs = std::filesystem;

fs::path claims_in(const fs::path& index) { return index / "claims"; }

/// The workers look the images up together: one each folder, list or tar.
std::unique_ptr<pack::Source> open_shared(const ImageRowsSpec& spec) {
  make_directories(spec.index);
  const std::size_t pieces = pack::index_count(spec.source);
  std::vector<bool> made(pieces);
  const auto left = [&] {
    std::vector<std::size_t> numbers;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      if (!made[piece]) made[piece] = pack::has_index(piece, spec.index);
      if (!made[piece]) numbers.push_back(piece);
    }
    return numbers;
  };
  if (!left().empty())
    WorkFolder({.claims = claims_in(spec.index), .beat_s = spec.beat_s, .stale_s = spec.stale_s})
        .do_all(left,
                [&](std::size_t piece) { pack::index_piece(spec.source, piece, spec.index); });
  return pack::open_source(spec.source, spec.index);
}

class ImageRows final : public InputRows {
 public:
  ImageRows(const ImageRowsSpec& spec, std::unique_ptr<pack::Source> source)
      : spec_(spec),
        source_(std::move(source)),
        form_(stored_as(spec.form, spec.preparation, spec.input, source_->rows())),
        info_(data::delivered(form_.stored, form_.augment, place())),
        name_bytes_(source_->file_name_bytes()) {
    if (spec_.source.labelled) look_up_classes();
    if (!spec_.form.jpeg && spec_.form.height == 0) look_at_first();
  }

  const data::DataSetInfo& info() const override { return info_; }
  std::int32_t label(std::size_t row) const override {
    return labelled() ? classes_[static_cast<std::size_t>(source_->label(row))] : -1;
  }
  data::MakeRow row_maker() const override {
    return [this, preparer = std::make_shared<data::ImagePreparer>(
                      spec_.form, form_.stored, form_.augment)](std::uint64_t, std::size_t row,
                                                                std::span<std::uint8_t> image) {
      preparer->prepare(source_->read_file(row), source_->name(row), image);
    };
  }
  std::string name(std::size_t row) const override { return source_->file_name(row); }
  std::size_t name_bytes() const override { return name_bytes_; }
  bool labelled() const override { return spec_.source.labelled; }
  std::string fingerprint() const override { return source_->fingerprint(); }

 private:
  std::string place() const { return spec_.source.files.front().string(); }

  /// Where the options do not say how images were packed, all must have the network's size.
  void look_at_first() const {
    const data::Image first = data::decode_turned(source_->read_file(0), source_->name(0),
                                                  spec_.form, form_.stored.element);
    require(
        first.height == form_.stored.height && first.width == form_.stored.width,
        fmt::format("{}: is {} x {}, but the network takes {} x {} (height x width): say how its "
                    "training's images were packed (--resize or --jpeg)",
                    source_->name(0), first.height, first.width, form_.stored.height,
                    form_.stored.width));
  }

  /// The network's number of each class that rows have. All are looked up by name; the numbers of a
  /// list count the classes of a network whose names are words.
  void look_up_classes() {
    const std::vector<std::string>&known = spec_.input.classes, &named = source_->classes();
    std::vector<bool> used(named.size());
    for (std::size_t row = 0; row < source_->rows(); ++row)
      used[static_cast<std::size_t>(source_->label(row))] = true;
    classes_.assign(named.size(), -1);
    std::vector<std::size_t> unknown;
    for (std::size_t c = 0; c < named.size(); ++c) {
      const auto found = std::find(known.begin(), known.end(), named[c]);
      if (found != known.end())
        classes_[c] = static_cast<std::int32_t>(found - known.begin());
      else if (used[c])
        unknown.push_back(c);
    }
    if (unknown.empty()) return;
    const auto is_number = [](const std::string& name) {
      return whole_number<std::size_t>(name).has_value();
    };
    const bool by_number =
        source_->labels_are_numbers() && std::none_of(known.begin(), known.end(), is_number);
    require(by_number && unknown.back() < known.size(),
            fmt::format("{}: the label \"{}\" is no class of the network; if the {} are no labels, "
                        "give --unlabelled",
                        place(), named[by_number ? unknown.back() : unknown.front()],
                        source_->labels_are_numbers() ? "numbers" : "folders"));
    for (const std::size_t c : unknown) classes_[c] = static_cast<std::int32_t>(c);
    log::info(fmt::format("{}: its labels are numbers of the network's classes: {} is {}", place(),
                          unknown.front(), known[unknown.front()]));
  }

  const ImageRowsSpec spec_;
  const std::unique_ptr<pack::Source> source_;
  const StoredForm form_;
  const data::DataSetInfo info_;
  const std::size_t name_bytes_;
  std::vector<std::int32_t> classes_;
};

}  // namespace

std::unique_ptr<InputRows> image_rows(const ImageRowsSpec& spec) {
  stored_as(spec.form, spec.preparation, spec.input, 1);  // before anything is made
  std::error_code none;
  const fs::path folder = spec.index.parent_path();
  const bool is_new = !fs::exists(folder, none);
  try {
    return std::make_unique<ImageRows>(spec, open_shared(spec));
  } catch (const InputError&) {
    // The index of images that the user now mends must not stay, unless others make it or have
    // begun to predict by it.
    const bool begun = fs::exists(SwarmFolder{folder}.note(), none);
    if (!begun && WorkFolder({.claims = claims_in(spec.index)}).workers() == 0) {
      fs::remove_all(spec.index, none);
      if (is_new) fs::remove(folder, none);  // if it is empty
    }
    throw;
  }
}

}  // namespace lockstep::serve
