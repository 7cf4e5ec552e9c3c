#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "pack/index/layout.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

/// `inner`: the folder's name below the source, or empty; the label of its images.
void add_images_below(const fs::path& folder, const std::string& inner, IndexWriter& index) {
  for (const fs::directory_entry& entry : sorted_entries(folder, Hidden::named)) {
    const std::string file = entry.path().filename().string();
    const std::string name = inner.empty() ? file : inner + '/' + file;
    if (is_left_out(file)) {
      // Only what may be an image, or hold some, is worth a word.
      if (is_system_folder(file) || named_as_image(file) || holds_images(entry)) index.ignore(name);
    } else if (is_folder(entry)) {
      index.add_class(name);
      add_images_below(entry.path(), name, index);
    } else if (named_as_image(file)) {
      index.add(Split::training, name, inner);
    } else {
      index.ignore(name);
    }
  }
}

bool has_folders(const fs::path& folder) {
  for (const fs::directory_entry& entry : sorted_entries(folder))
    if (is_folder(entry)) return true;
  return false;
}

}  // namespace

void index_class_folders(const fs::path& folder, Split split, bool names_are_given,
                         IndexWriter& index) {
  require_folder(folder);
  require(has_folders(folder),
          fmt::format("{}: no class folders; expected {}/<class>/<image> named {}", folder.string(),
                      folder.string(), image_endings));
  add_images_below(folder, "", index);
  index.settle([&](const std::vector<ImageFolder>& folders) {
    return place_folders({.source = folder, .split = split, .names_are_given = names_are_given},
                         folders);
  });
}

void index_images(const fs::path& folder, IndexWriter& index) {
  if (is_image_file(folder))
    return index.add(Split::training, folder.filename().string(), no_class);
  require_folder(folder);
  add_images_below(folder, "", index);
  bool any = false;
  index.settle([&](const std::vector<ImageFolder>& folders) {
    for (const ImageFolder& one : folders) any = any || one.images > 0;
    return std::vector<Place>(folders.size(), {Split::training, no_class});
  });
  require(any, fmt::format("{}: holds no {}", folder.string(), image_endings));
}

}  // namespace lockstep::pack
