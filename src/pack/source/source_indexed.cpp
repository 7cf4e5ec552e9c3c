#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "pack/index/class_list.hpp"
#include "pack/index/layout.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t largest_file = std::uint64_t{1} << 28;

std::string read_bytes(int descriptor, std::uint64_t offset, std::size_t bytes,
                       const std::string& name) {
  std::string to(bytes, '\0');
  if (read_all_at(descriptor, to.data(), bytes, offset) == bytes) return to;
  require(errno != 0, fmt::format("{}: the file has become shorter", name));
  throw InputError(fmt::format("{}: {}", name, std::strerror(errno)));
}

Descriptor open_to_read(const fs::path& path) {
  Descriptor file = open_regular(path);
  if (!file) {
    const char* hint = errno == EMFILE ? " (raise 'ulimit -n')" : "";
    throw InputError(fmt::format("{}: {}{}", path.string(), std::strerror(errno), hint));
  }
  return file;
}

/// A file with its stamp at one time.
std::string read_whole(const std::string& path) {
  const Descriptor file = open_to_read(path);
  const FileStamp before = stamp_of(file.get(), path);
  require(before.bytes <= largest_file, fmt::format("{}: has {} bytes; an image has at most {}",
                                                    path, before.bytes, largest_file));
  std::string bytes = read_bytes(file.get(), 0, before.bytes, path);
  require(stamp_of(file.get(), path) == before,
          fmt::format("{}: has changed while it was read", path));
  return bytes;
}

/// "cat/1.jpg" of "photos/train/cat/1.jpg": whether folders, a list or a tar led to an image, its
/// name is the same.
std::string_view below_part(std::string_view name) {
  for (std::size_t at = 0, end = name.find('/'); end != name.npos;
       at = end + 1, end = name.find('/', at)) {
    Split split = Split::training;
    if (names_a_split(name.substr(at, end - at), split) && name.find('/', end + 1) != name.npos)
      return name.substr(end + 1);
  }
  return name;
}

class Indexed final : public Source {
 public:
  Indexed(const SourceSpec& spec, std::vector<IndexFile> indexes)
      : kind_(spec.kind),
        has_names_file_(!spec.class_names.empty()),
        labelled_(spec.labelled),
        indexes_(std::move(indexes)) {
    const Split validation = settle_validation();
    add_split(Split::training);
    training_rows_ = rows_;
    require(rows_ > 0, say_no_training(spec.files[0]));
    add_split(validation);
    classes_ = merge_classes(indexes_, validation, spec.class_names);
    if (classes_.untrained > 0)
      remarks_.push_back(fmt::format("{} of {} classes have no training image", classes_.untrained,
                                     classes_.names.size()));
    if (!classes_.remark.empty()) remarks_.push_back(classes_.remark);
    add_remarks();
    open_archives();
  }

  std::string kind() const override { return kind_; }
  const std::vector<std::string>& classes() const override { return classes_.names; }
  bool labels_are_numbers() const override { return classes_.are_numbers; }
  std::size_t rows() const override { return rows_; }
  std::size_t training_rows() const override { return training_rows_; }
  std::size_t native_channels() const override { return 3; }

  std::int32_t label(std::size_t row) const override {
    const IndexedRow place = find(row);
    return classes_.labels[place.index][static_cast<std::size_t>(place.row->label)];
  }

  std::string name(std::size_t row) const override {
    const IndexedRow place = find(row);
    const IndexFile& index = indexes_[place.index];
    if (index.content().empty()) return one_line(path(place));
    return one_line(fmt::format("{}: {}", index.origin().string(), index.name(*place.row)));
  }

  std::string where(std::size_t row) const override {
    const IndexedRow place = find(row);
    return one_line(place_in_list(place)) + name(row);
  }

  data::Image read(std::size_t row) const override {
    return data::decode_image(read_file(row), name(row));
  }

  std::string read_file(std::size_t row) const override {
    const IndexedRow place = find(row);
    if (indexes_[place.index].content().empty()) try {
        return read_whole(path(place));
      } catch (const InputError& error) {
        throw InputError(place_in_list(place) + error.what() + say_first_missing(place));
      }
    return read_bytes(archives_[place.index].get(), place.row->offset, place.row->bytes, name(row));
  }

  std::string file_name(std::size_t row) const override {
    const IndexedRow place = find(row);
    const IndexFile& index = indexes_[place.index];
    const std::string_view file = below_part(index.name(*place.row));
    // Members with label files have keys, which may be the same in every tar.
    if (index.content().empty() || !index.labels_are_given()) return std::string(file);
    return fmt::format("{}: {}", index.origin().filename().string(), file);
  }

  std::size_t file_name_bytes() const override {
    std::size_t most = 0;
    for (std::size_t row = 0; row < rows_; ++row) most = std::max(most, file_name(row).size());
    return most;
  }

  std::string fingerprint() const override {
    std::uint32_t hash = 0;
    for (const IndexFile& index : indexes_) {
      const std::uint32_t sum = index.checksum();
      hash = crc32c(&sum, sizeof sum, hash);
    }
    for (const std::string& name : classes_.names)
      hash = crc32c(name.c_str(), name.size() + 1, hash);
    return fmt::format("{} images, hash {:08x}", rows_, hash);
  }

  void require_unchanged() const override {
    for (std::size_t i = 0; i < archives_.size(); ++i)
      if (archives_[i]) require_unchanged(i);
  }

 private:
  /// Rows of one split of an index; the first is row `first` of the source.
  struct Section {
    std::size_t index = 0;
    Split split = Split::training;
    std::size_t first = 0;
  };
  struct IndexedRow {
    std::size_t index = 0;
    const IndexRow* row = nullptr;
  };

  IndexedRow find(std::size_t row) const {
    check(row < rows_, "a row of the source");
    const auto after =
        std::upper_bound(sections_.begin(), sections_.end(), row,
                         [](std::size_t r, const Section& section) { return r < section.first; });
    const Section& section = *(after - 1);
    return {section.index, &indexes_[section.index].row(section.split, row - section.first)};
  }

  /// "names.txt, line 7: "; empty where no list led to the image.
  std::string place_in_list(const IndexedRow& place) const {
    const fs::path& list = indexes_[place.index].list();
    return list.empty() ? "" : fmt::format("{}, line {}: ", list.string(), place.row->offset);
  }

  /// Rows are read in any order, so the line that is found first says little about the list.
  std::string say_first_missing(const IndexedRow& place) const {
    const IndexFile& index = indexes_[place.index];
    std::error_code none;
    if (index.list().empty() || fs::exists(path(place), none)) return "";
    std::call_once(looked_, [&] {
      for (std::size_t split = 0; split < split_count && first_missing_.empty(); ++split)
        for (std::size_t row = 0; row < index.rows(static_cast<Split>(split)); ++row) {
          const IndexedRow one{place.index, &index.row(static_cast<Split>(split), row)};
          if (fs::exists(path(one), none)) continue;
          first_missing_ = fmt::format(" (the first that is missing: line {})", one.row->offset);
          break;
        }
    });
    return first_missing_;
  }

  std::string path(const IndexedRow& place) const {
    const IndexFile& index = indexes_[place.index];
    const std::string_view name = index.name(*place.row);
    if (name.starts_with('/')) return std::string(name);
    return index.origin().string().append(1, '/').append(name);
  }

  std::string say_no_training(const fs::path& source) const {
    std::size_t others = 0;
    for (const IndexFile& index : indexes_)
      others += index.rows(Split::validation) + index.rows(Split::test);
    return fmt::format("{}: holds no training images{}", source.string(),
                       others == 0 ? ""
                                   : fmt::format("; {} are in a folder for validation or test: to "
                                                 "train on them, give that folder itself",
                                                 others));
  }

  /// A validation split takes precedence over a test split.
  Split settle_validation() {
    std::size_t rows = 0, test_rows = 0;
    for (const IndexFile& index : indexes_) {
      rows += index.rows(Split::validation);
      test_rows += index.rows(Split::test);
    }
    if (rows > 0 && test_rows > 0)
      remarks_.push_back(
          fmt::format("{} images of test/ were left out: val/ is the validation split", test_rows));
    return rows > 0 ? Split::validation : Split::test;
  }

  void add_split(Split split) {
    for (std::size_t i = 0; i < indexes_.size(); ++i) {
      if (indexes_[i].rows(split) == 0) continue;
      sections_.push_back({i, split, rows_});
      rows_ += indexes_[i].rows(split);
    }
  }

  void add_remarks() {
    std::uint64_t ignored = 0, passed_json = 0;
    for (const IndexFile& index : indexes_) {
      ignored += index.ignored_files();
      if (!index.labels_are_given()) passed_json += index.passed_json();
    }
    if (ignored > 0) {
      const auto first = std::find_if(indexes_.begin(), indexes_.end(),
                                      [](const IndexFile& one) { return one.ignored_files() > 0; });
      remarks_.push_back(fmt::format(
          "{} file{} left out: not named {}, in no class folder, or hidden or a system's, the "
          "folders as one each; the first: {}",
          ignored, ignored == 1 ? "" : "s", image_endings, first->first_ignored()));
    }
    for (const IndexFile& index : indexes_)
      remarks_.insert(remarks_.end(), index.remarks().begin(), index.remarks().end());
    if (passed_json > 0) {
      const auto first = std::find_if(indexes_.begin(), indexes_.end(),
                                      [](const IndexFile& one) { return one.passed_json() > 0; });
      remarks_.push_back(fmt::format(
          "{} .json give no label (\"label\", \"cls\" or \"class\", next to an image): the folders "
          "are taken as classes; the first: {}",
          passed_json, first->first_json()));
    }
    const auto& names = classes_.names;
    const auto by_number = [](const std::string& a, const std::string& b) {
      return whole_number<std::size_t>(a) < whole_number<std::size_t>(b);
    };
    const auto is_number = [](const auto& name) { return whole_number<std::size_t>(name); };
    const auto odd = std::is_sorted_until(names.begin(), names.end(), by_number);
    if (odd != names.end() && !indexes_[0].labels_are_given() && !has_names_file_ &&
        std::all_of(names.begin(), names.end(), is_number))
      remarks_.push_back(fmt::format(
          "folders are classes in the order of their names, not of their numbers: class "
          "{} is \"{}\" (--class-names gives another order)",
          odd - names.begin(), *odd));
    if (indexes_[0].labels_are_given() && !has_names_file_ &&
        !std::all_of(names.begin(), names.end(), is_number))
      remarks_.push_back("the labels are texts; " + data::classes_in_order(names));
    if (labelled_ && classes_.names.size() == 1)
      remarks_.push_back(fmt::format("all images are of one class, \"{}\": a classifier needs 2",
                                     classes_.names[0]));
  }

  void open_archives() {
    allow_open_files(indexes_.size());
    archives_.resize(indexes_.size());
    for (std::size_t i = 0; i < indexes_.size(); ++i) {
      if (indexes_[i].content().empty()) continue;
      archives_[i] = open_to_read(indexes_[i].content());
      require_unchanged(i);
    }
  }

  /// Checks an archive. Its unpacked copy is our file and needs no check; the archive that it was
  /// made from may be gone, but must not be another one.
  void require_unchanged(std::size_t index) const {
    const IndexFile& file = indexes_[index];
    const bool unpacked = file.content() != file.origin();
    if (unpacked && !fs::exists(file.origin())) return;
    require((unpacked ? stamp_of(file.origin())
                      : stamp_of(archives_[index].get(), file.origin())) == file.stamp(),
            fmt::format("{}: has changed since its index was made", file.origin().string()));
  }

  std::string kind_;
  bool has_names_file_, labelled_;
  std::vector<IndexFile> indexes_;
  ClassList classes_;
  std::vector<Section> sections_;
  std::vector<Descriptor> archives_;  ///< for each index that was made from an archive
  std::size_t rows_ = 0, training_rows_ = 0;
  mutable std::once_flag looked_;
  mutable std::string first_missing_;  ///< in a list: what to say of it
};

}  // namespace

std::unique_ptr<Source> open_indexed(const SourceSpec& spec, std::vector<IndexFile> indexes) {
  return std::make_unique<Indexed>(spec, std::move(indexes));
}

}  // namespace lockstep::pack
