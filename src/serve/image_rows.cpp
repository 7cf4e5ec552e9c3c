#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/serve/input_rows.hpp"
#include "serve/stored_form.hpp"
#include "serve/swarm/claims.hpp"

namespace lockstep::serve {
namespace {

/// The workers look the images up together: one each folder, list or tar.
std::unique_ptr<pack::Source> open_shared(const ImageRowsSpec& spec) {
  make_directories(spec.index);
  const std::size_t pieces = pack::index_count(spec.source);
  const auto left = [&] {
    std::vector<std::size_t> numbers;
    for (std::size_t piece = 0; piece < pieces; ++piece)
      if (!pack::has_index(piece, spec.index)) numbers.push_back(piece);
    return numbers;
  };
  if (!left().empty()) {
    Claims claims(
        {.folder = spec.index / "claims", .beat_s = spec.beat_s, .stale_s = spec.stale_s});
    while (!left().empty()) {
      const auto piece = claims.take_any(left());
      if (piece && !pack::has_index(*piece, spec.index))
        pack::index_piece(spec.source, *piece, spec.index);
      if (piece)
        claims.release(*piece);
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  return pack::open_source(spec.source, spec.index);
}

class ImageRows final : public InputRows {
 public:
  explicit ImageRows(const ImageRowsSpec& spec)
      : spec_(spec),
        source_(open_shared(spec)),
        stored_(stored_as(spec.form, spec.input, source_->rows())),
        augment_(model::evaluation_augment(spec.preparation, spec.input, stored_)),
        info_(data::delivered(stored_, augment_, place())),
        name_bytes_(source_->file_name_bytes()) {
    if (spec_.source.labelled) look_up_classes();
    if (!spec_.form.jpeg && spec_.form.height == 0) look_at_first();
  }

  const data::DataSetInfo& info() const override { return info_; }
  std::int32_t label(std::size_t row) const override {
    return labelled() ? classes_[static_cast<std::size_t>(source_->label(row))] : -1;
  }
  data::MakeRow row_maker() const override {
    return [this, preparer = std::make_shared<data::ImagePreparer>(spec_.form, stored_, augment_)](
               std::uint64_t, std::size_t row, std::span<std::uint8_t> image) {
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
    const data::Image first = source_->read(0);
    require(
        first.height == stored_.height && first.width == stored_.width,
        fmt::format("{}: is {} x {}, but the network takes {} x {} (height x width): say how its "
                    "training's images were packed (--resize or --jpeg)",
                    source_->name(0), first.height, first.width, stored_.height, stored_.width));
  }

  /// The network's number of each class of the source.
  void look_up_classes() {
    const std::vector<std::string>&known = spec_.input.classes, &named = source_->classes();
    for (std::size_t c = 0; c < named.size(); ++c) {
      const std::string& name = named[c];
      if (name == std::to_string(c) && c < known.size()) {  // a list may have numbers
        classes_.push_back(static_cast<std::int32_t>(c));
        continue;
      }
      const auto found = std::find(known.begin(), known.end(), name);
      require(found != known.end(),
              fmt::format("{}: the label \"{}\" is no class of the network; if the folders are no "
                          "labels, give --unlabelled",
                          place(), name));
      classes_.push_back(static_cast<std::int32_t>(found - known.begin()));
    }
  }

  const ImageRowsSpec spec_;
  const std::unique_ptr<pack::Source> source_;
  const data::DataSetInfo stored_;
  const data::AugmentSpec augment_;
  const data::DataSetInfo info_;
  const std::size_t name_bytes_;
  std::vector<std::int32_t> classes_;
};

}  // namespace

std::unique_ptr<InputRows> image_rows(const ImageRowsSpec& spec) {
  try {
    return std::make_unique<ImageRows>(spec);
  } catch (const InputError&) {
    // The index of images that the user now mends must not stay. Who reads it has it open.
    std::error_code none;
    std::filesystem::remove_all(spec.index, none);
    throw;
  }
}

}  // namespace lockstep::serve
