#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> sub_folders(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : sorted_entries(folder))
    if (is_folder(entry)) folders.push_back(entry.path());
  return folders;
}

/// Indexes all images below one class folder and returns their number.
std::size_t add_images(const fs::path& folder, const std::string& name, std::string_view label,
                       Split split, IndexWriter& index) {
  std::size_t images = 0;
  for (const fs::directory_entry& entry : sorted_entries(folder)) {
    const std::string path = name + '/' + entry.path().filename().string();
    if (is_folder(entry)) {
      images += add_images(entry.path(), path, label, split, index);
    } else if (named_as_image(path)) {
      index.add(split, path, label);
      ++images;
    } else {
      index.ignore_file();
    }
  }
  return images;
}

}  // namespace

bool has_class_folders(const fs::path& folder) {
  return fs::is_directory(folder) && !sub_folders(folder).empty();
}

void index_class_folders(const fs::path& folder, Split split, IndexWriter& index) {
  require_folder(folder);
  const std::vector<fs::path> folders = sub_folders(folder);
  require(!folders.empty(),
          fmt::format("{}: no class folders; expected {}/<class>/<image> named {}", folder.string(),
                      folder.string(), image_endings));
  for (const fs::directory_entry& entry : sorted_entries(folder))
    if (!is_folder(entry)) index.ignore_file();
  for (const fs::path& path : folders) {
    const std::string label = path.filename().string();
    require(add_images(path, label, label, split, index) > 0,
            fmt::format("{}: an empty class folder: no {} in it; add images or remove it from {}",
                        path.string(), image_endings, folder.string()));
  }
}

}  // namespace lockstep::pack
