#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/pack/source/source.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr std::size_t cifar_side = 32, cifar_plane = cifar_side * cifar_side;

/// How one of the two data sets is stored: rows of `label_bytes` labels, the last of which counts,
/// and three planes of pixels.
struct Format {
  std::string kind;
  std::size_t classes, label_bytes, rows_in_file;  ///< rows_in_file: in the original's files
  std::string names_file;
  std::size_t row_bytes() const { return label_bytes + 3 * cifar_plane; }
};

class Cifar final : public Source {
 public:
  Cifar(Format format, const fs::path& folder) : format_(std::move(format)) {
    read_class_names(folder / format_.names_file);
  }

  void add_file(const fs::path& path) {
    Descriptor file = open_regular(path);
    require(static_cast<bool>(file), fmt::format("{}: {}", path.string(), std::strerror(errno)));
    const std::size_t size = fs::file_size(path), row = format_.row_bytes();
    require(size > 0 && size % row == 0,
            fmt::format("{}: truncated or not a {} file: expected whole rows of {} bytes ({} bytes "
                        "in the original), found {} bytes",
                        path.string(), format_.kind, row, format_.rows_in_file * row, size));
    files_.push_back({path, std::move(file), labels_.size()});
    for (std::size_t r = 0; r < size / row; ++r) add_label(files_.back(), r);
  }
  void end_training(std::size_t original_rows) {
    training_rows_ = labels_.size();
    if (training_rows_ != original_rows)
      remarks_.push_back(fmt::format("these files have {} rows for training, the original's {}",
                                     training_rows_, original_rows));
  }

  std::string kind() const override { return format_.kind; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::size_t rows() const override { return labels_.size(); }
  std::size_t training_rows() const override { return training_rows_; }
  std::size_t native_channels() const override { return 3; }
  std::int32_t label(std::size_t row) const override { return labels_[row]; }
  std::string name(std::size_t row) const override {
    const File& file = file_of(row);
    return fmt::format("{}, row {}", file.path.string(), row - file.first_row);
  }

  data::Image read(std::size_t row) const override {
    const File& file = file_of(row);
    std::uint8_t planes[3 * cifar_plane];
    read_at(file, (row - file.first_row) * format_.row_bytes() + format_.label_bytes, planes,
            sizeof planes);
    data::Image image{.height = cifar_side,
                      .width = cifar_side,
                      .channels = 3,
                      .pixels = std::vector<std::uint8_t>(3 * cifar_plane)};
    for (std::size_t i = 0; i < cifar_plane; ++i)
      for (std::size_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = planes[c * cifar_plane + i];
    return image;
  }

 private:
  struct File {
    fs::path path;
    Descriptor descriptor;
    std::size_t first_row = 0;
  };

  void read_class_names(const fs::path& path) {
    std::istringstream lines(fs::exists(path) ? read_text(path) : "");
    for (std::string line; std::getline(lines, line);) {
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) classes_.push_back(line);
    }
    if (classes_.empty()) {
      remarks_.push_back(
          fmt::format("{} is not there: classes are named by their numbers", path.string()));
      for (std::size_t c = 0; c < format_.classes; ++c) classes_.push_back(std::to_string(c));
    }
    require(classes_.size() == format_.classes,
            fmt::format("{}: expected {} class names, found {}", path.string(), format_.classes,
                        classes_.size()));
  }

  void add_label(const File& file, std::size_t row) {
    std::uint8_t label = 0;
    read_at(file, row * format_.row_bytes() + format_.label_bytes - 1, &label, 1);
    require(label < format_.classes,
            fmt::format("{}, row {}: label {} is out of range: {} has {} classes",
                        file.path.string(), row, label, format_.kind, format_.classes));
    labels_.push_back(label);
  }

  const File& file_of(std::size_t row) const {
    std::size_t f = files_.size() - 1;
    while (files_[f].first_row > row) --f;
    return files_[f];
  }

  void read_at(const File& file, std::size_t offset, std::uint8_t* to, std::size_t size) const {
    if (read_all_at(file.descriptor.get(), to, size, offset) == size) return;
    const char* why = errno != 0 ? std::strerror(errno) : "the file has become shorter";
    throw InputError(
        fmt::format("{}: cannot read {} bytes at {}: {}", file.path.string(), size, offset, why));
  }

  Format format_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
  std::vector<std::uint8_t> labels_;
  std::size_t training_rows_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_cifar10(const fs::path& folder) {
  require_folder(folder);
  auto cifar = std::make_unique<Cifar>(Format{.kind = "cifar10",
                                              .classes = 10,
                                              .label_bytes = 1,
                                              .rows_in_file = 10000,
                                              .names_file = "batches.meta.txt"},
                                       folder);
  std::size_t batches = 0;
  for (const std::string& name : file_names(folder))
    batches += name.starts_with("data_batch_") && name.ends_with(".bin");
  require(batches > 0, fmt::format("{}: no data_batch_1.bin: not the binary version of CIFAR-10",
                                   folder.string()));
  for (std::size_t b = 1; b <= batches; ++b)
    cifar->add_file(folder / fmt::format("data_batch_{}.bin", b));
  cifar->end_training(50'000);
  if (fs::exists(folder / "test_batch.bin")) cifar->add_file(folder / "test_batch.bin");
  return cifar;
}

std::unique_ptr<Source> open_cifar100(const fs::path& folder) {
  require_folder(folder);
  auto cifar = std::make_unique<Cifar>(Format{.kind = "cifar100",
                                              .classes = 100,
                                              .label_bytes = 2,
                                              .rows_in_file = 50000,
                                              .names_file = "fine_label_names.txt"},
                                       folder);
  cifar->add_file(folder / "train.bin");
  cifar->end_training(50'000);
  if (fs::exists(folder / "test.bin")) cifar->add_file(folder / "test.bin");
  return cifar;
}

}  // namespace lockstep::pack
