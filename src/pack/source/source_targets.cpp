#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "pack/source/csv_lines.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr float unknown = std::numeric_limits<float>::quiet_NaN();

/// Images without labels, for each of which a line of a CSV file has numbers.
class Targeted final : public Source {
 public:
  Targeted(std::unique_ptr<Source> images, const SourceSpec& spec)
      : images_(std::move(images)), list_(spec.targets), line_of_(images_->rows()) {
    remarks_ = images_->remarks();
    find_names();
    read_lines();
    for (std::size_t row = 0; row < line_of_.size(); ++row)
      require(line_of_[row] > 0,
              fmt::format("{}: {} has no line for it", images_->name(row), list_.string()));
    choose_task(spec.targets_task);
  }

  std::string kind() const override { return images_->kind(); }
  const std::vector<std::string>& classes() const override { return outputs_; }
  std::size_t rows() const override { return images_->rows(); }
  std::size_t training_rows() const override { return images_->training_rows(); }
  std::size_t native_channels() const override { return images_->native_channels(); }
  const data::DataSetInfo* stored() const override { return images_->stored(); }
  std::int32_t label(std::size_t) const override { return 0; }
  data::Task task() const override { return task_; }
  float wanted(std::size_t row, std::size_t output) const override {
    return wanted_[row * outputs_.size() + output];
  }
  std::string name(std::size_t row) const override { return images_->name(row); }
  std::string where(std::size_t row) const override {
    return fmt::format("{}, line {}: {}", list_.string(), line_of_[row], name(row));
  }
  data::Image read(std::size_t row) const override { return images_->read(row); }
  std::string read_file(std::size_t row) const override { return images_->read_file(row); }
  std::string file_name(std::size_t row) const override { return images_->file_name(row); }
  std::size_t file_name_bytes() const override { return images_->file_name_bytes(); }
  std::string fingerprint() const override {
    std::uint32_t hash = crc32c(wanted_.data(), wanted_.size() * sizeof(float));
    for (const std::string& name : outputs_) hash = crc32c(name.c_str(), name.size() + 1, hash);
    return fmt::format("{}, {} {:08x}", images_->fingerprint(), choice_name(task_), hash);
  }
  void require_unchanged() const override { images_->require_unchanged(); }

 private:
  static constexpr std::size_t several = std::numeric_limits<std::size_t>::max();

  /// Paths below the source, and the names of files, which several may have.
  void find_names() {
    for (std::size_t row = 0; row < images_->rows(); ++row) {
      const std::string path = images_->file_name(row);
      paths_.emplace(path, row);
      const auto [at, is_new] = files_.emplace(fs::path(path).filename().string(), row);
      if (!is_new) at->second = several;
    }
  }

  std::size_t row_of(const std::string& name, const CsvLines& lines) const {
    if (const auto found = paths_.find(name); found != paths_.end()) return found->second;
    const auto found = files_.find(name);
    if (found == files_.end()) lines.refuse(fmt::format("there is no image \"{}\"", name));
    if (found->second == several)
      lines.refuse(
          fmt::format("several images are called \"{}\": give their paths in the folder", name));
    return found->second;
  }

  void read_lines() {
    CsvLines lines(list_);
    std::vector<std::string> fields;
    require(lines.next(fields), fmt::format("{}: is empty", list_.string()));
    const std::vector<std::string> header = fields;
    const auto path = column_of_paths(header);
    if (!path || header.size() < 2)
      lines.refuse(
          fmt::format("expected a header with a column 'path' or 'file', and names of "
                      "labels or values; found: {}{}",
                      join(header, ", ").substr(0, 200), lines.say_separator(header)));
    for (std::size_t i = 0; i < header.size(); ++i) {
      if (i == *path) continue;
      if (header[i].empty()) lines.refuse(fmt::format("column {} has no name", i + 1));
      if (std::ranges::count(header, header[i]) > 1)
        lines.refuse(fmt::format("names the column '{}' twice", header[i]));
      outputs_.push_back(header[i]);
    }
    wanted_.assign(rows() * outputs_.size(), unknown);
    while (lines.next(fields)) {
      if (fields.size() != header.size())
        lines.refuse(fmt::format("has {}, but the header {}", counted(fields.size(), "field"),
                                 header.size()));
      const std::size_t row = row_of(fields[*path], lines);
      if (line_of_[row] > 0)
        lines.refuse(fmt::format("\"{}\" has line {}, too", fields[*path], line_of_[row]));
      line_of_[row] = lines.number();
      float* to = wanted_.data() + row * outputs_.size();
      for (std::size_t i = 0; i < fields.size(); ++i)
        if (i != *path) *to++ = number_in(fields[i], header[i], lines);
    }
  }

  /// An empty field, or nan, is not known.
  static float number_in(const std::string& field, const std::string& column,
                         const CsvLines& lines) {
    if (field.empty()) return unknown;
    const auto number = real_number(field);
    if (!number || std::isinf(static_cast<float>(*number)))
      lines.refuse(fmt::format("'{}' in the column '{}' is not a number", field, column));
    return static_cast<float>(*number);
  }

  void choose_task(std::optional<data::Task> asked) {
    std::size_t row = 0;
    while (row < wanted_.size() &&
           (wanted_[row] == 0 || wanted_[row] == 1 || std::isnan(wanted_[row])))
      ++row;
    const bool bits = row == wanted_.size();
    task_ = asked.value_or(bits ? data::Task::labels : data::Task::values);
    require(
        task_ != data::Task::classes,
        fmt::format("{}: classes come from folders or lists, not from --targets", list_.string()));
    if (task_ == data::Task::labels && !bits)
      throw InputError(fmt::format("{}, line {}: {} is not a label, which is 0 or 1",
                                   list_.string(), line_of_[row / outputs_.size()], wanted_[row]));
    remarks_.push_back(fmt::format("{}: {} {} a row: {}", list_.string(), outputs_.size(),
                                   choice_name(task_), join(outputs_, ", ")));
  }

  std::unique_ptr<Source> images_;
  fs::path list_;
  std::map<std::string, std::size_t> paths_, files_;
  std::vector<std::string> outputs_;
  std::vector<float> wanted_;         ///< [rows, outputs]
  std::vector<std::size_t> line_of_;  ///< of each row; 0: none
  data::Task task_ = data::Task::values;
};

}  // namespace

std::unique_ptr<Source> with_targets(std::unique_ptr<Source> images, const SourceSpec& spec) {
  return std::make_unique<Targeted>(std::move(images), spec);
}

}  // namespace lockstep::pack
