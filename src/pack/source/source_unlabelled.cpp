#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

/// `inner`: the folder's name below the source, with a slash, or empty.
std::size_t add_images_below(const fs::path& folder, const std::string& inner, IndexWriter& index) {
  std::size_t images = 0;
  for (const fs::directory_entry& entry : sorted_entries(folder)) {
    const std::string name = inner + entry.path().filename().string();
    if (is_folder(entry)) {
      images += add_images_below(entry.path(), name + '/', index);
    } else if (named_as_image(name)) {
      index.add(Split::training, name, no_class);
      ++images;
    } else {
      index.ignore_file();
    }
  }
  return images;
}

}  // namespace

void index_images(const fs::path& folder, IndexWriter& index) {
  if (is_image_file(folder))
    return index.add(Split::training, folder.filename().string(), no_class);
  require_folder(folder);
  require(add_images_below(folder, "", index) > 0,
          fmt::format("{}: holds no {}", folder.string(), image_endings));
}

void index_paths(const fs::path& list, const fs::path& root, IndexWriter& index) {
  require_folder(root);
  require_regular(list);
  std::ifstream lines(list);
  require(lines.good(), fmt::format("{}: {}", list.string(), std::strerror(errno)));
  index.set_list(list);
  std::size_t number = 0, images = 0;
  for (std::string path; std::getline(lines, path);) {
    ++number;
    if (path.ends_with('\r')) path.pop_back();
    if (path.empty() || path.starts_with('#')) continue;
    require(named_as_image(path),
            fmt::format("{}, line {}: expected the path of an image ({}), found \"{}\"",
                        list.string(), number, image_endings, path.substr(0, 200)));
    index.add(Split::training, path, no_class, number);
    ++images;
  }
  require(lines.eof(), fmt::format("{}: cannot be read after line {}", list.string(), number));
  require(images > 0, fmt::format("{}: lists no images", list.string()));
}

}  // namespace lockstep::pack
