#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/data/source.hpp"
#include "source_files.hpp"

namespace lockstep::data {
namespace fs = std::filesystem;

namespace {

bool named_as_image(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::vector<fs::path> sub_folders(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : sorted_entries(folder))
    if (entry.is_directory()) folders.push_back(entry.path());
  return folders;
}

/// A folder of class folders whose own name says which split it is.
bool is_split(const fs::path& folder) {
  return fs::is_directory(folder) && !sub_folders(folder).empty();
}

class ClassFolders final : public Source {
 public:
  explicit ClassFolders(const fs::path& folder) {
    if (!is_split(folder / "train")) {
      add_split(folder, true);
      training_rows_ = files_.size();
    } else {
      add_split(folder / "train", true);
      training_rows_ = files_.size();
      add_test_split(folder);
    }
    if (ignored_ > 0)
      remarks_.push_back(fmt::format("{} file{} not named .jpg, .jpeg or .png left out", ignored_,
                                     ignored_ == 1 ? "" : "s"));
  }

  std::string kind() const override { return "classes"; }
  const std::vector<std::string>& classes() const override { return classes_; }
  std::size_t rows() const override { return files_.size(); }
  std::size_t training_rows() const override { return training_rows_; }
  std::size_t native_channels() const override { return 3; }
  std::int32_t label(std::size_t row) const override { return files_[row].label; }
  std::string name(std::size_t row) const override { return path(row).string(); }
  Image read(std::size_t row) const override { return decode_image(read_file(row), name(row)); }
  std::string read_file(std::size_t row) const override { return read_text(path(row)); }

 private:
  /// A file by its class folder and its name in it: a full path for each of a million images would
  /// be most of the memory.
  struct File {
    std::uint32_t folder = 0;
    std::int32_t label = 0;
    std::string name;
  };

  fs::path path(std::size_t row) const { return folders_[files_[row].folder] / files_[row].name; }

  void add_test_split(const fs::path& folder) {
    const bool val = is_split(folder / "val"), test = is_split(folder / "test");
    if (val && test)
      remarks_.push_back(
          fmt::format("{} was left out: val/ is the validation split", (folder / "test").string()));
    if (val || test) add_split(folder / (val ? "val" : "test"), false);
  }

  void add_split(const fs::path& folder, bool training) {
    const std::vector<fs::path> folders = sub_folders(folder);
    require(!folders.empty(),
            fmt::format("{}: no class folders; expected {}/<class>/<image>.jpg, .jpeg or .png",
                        folder.string(), folder.string()));
    for (const fs::path& path : folders) {
      if (training) classes_.push_back(path.filename().string());
      add_class(path, folder);
    }
  }

  void add_class(const fs::path& folder, const fs::path& split) {
    const auto found = std::find(classes_.begin(), classes_.end(), folder.filename().string());
    require(found != classes_.end(),
            fmt::format("{}: no training class has this name", folder.string()));
    const auto label = static_cast<std::int32_t>(found - classes_.begin());
    const auto index = static_cast<std::uint32_t>(folders_.size());
    folders_.push_back(folder);
    const std::size_t before = files_.size();
    add_images(folder, folder, index, label);
    require(files_.size() > before,
            fmt::format("{}: an empty class folder: no .jpg, .jpeg or .png in it; add images or "
                        "remove it from {}",
                        folder.string(), split.string()));
  }

  void add_images(const fs::path& folder, const fs::path& top, std::uint32_t index,
                  std::int32_t label) {
    for (const fs::directory_entry& entry : sorted_entries(folder)) {
      if (entry.is_directory())
        add_images(entry.path(), top, index, label);
      else if (named_as_image(entry.path()))
        files_.push_back({index, label, entry.path().lexically_relative(top).string()});
      else
        ++ignored_;
    }
  }

  std::vector<std::string> classes_;
  std::vector<fs::path> folders_;
  std::vector<File> files_;
  std::size_t training_rows_ = 0, ignored_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_class_folders(const fs::path& folder) {
  require_folder(folder);
  return std::make_unique<ClassFolders>(folder);
}

}  // namespace lockstep::data
