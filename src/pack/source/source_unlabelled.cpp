#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

void index_paths(const fs::path& list, const fs::path& root, IndexWriter& index) {
  require_folder(root);
  require_regular(list);
  std::ifstream lines(list);
  require(lines.good(), fmt::format("{}: {}", list.string(), std::strerror(errno)));
  index.set_list(list);
  std::size_t number = 0, images = 0;
  for (std::string path; std::getline(lines, path);) {
    if (++number == 1 && path.starts_with("\xEF\xBB\xBF")) path.erase(0, 3);  // of UTF-8
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
