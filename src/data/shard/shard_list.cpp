#include "data/shard/shard_list.hpp"

#include <fmt/core.h>
#include <glob.h>

#include <algorithm>

#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/text/join.hpp"

namespace lockstep::data {

std::vector<std::filesystem::path> list_shards(const std::filesystem::path& path) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::exists(path, error) &&
      path.string().find_first_of("*?[") != std::string::npos) {
    glob_t found{};
    const int status = ::glob(path.c_str(), 0, nullptr, &found);
    for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
      files.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (files.empty()) h5::refuse(path, "no file has such a name");
    std::sort(files.begin(), files.end());
    return files;
  }
  if (!std::filesystem::is_directory(path, error)) return {path};
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().extension() == ".h5") files.push_back(entry.path());
  }
  if (error) h5::refuse(path, fmt::format("cannot be listed: {}", error.message()));
  if (files.empty()) {
    h5::refuse(path, "holds no *.h5 file; give a shard or the directory that the shards are in");
  }
  std::sort(files.begin(), files.end());
  return files;
}

void check_agreement(const ShardFile& first, const ShardFile& other) {
  const DataSetInfo &a = first.info, &b = other.info;
  const auto disagree = [&](std::string_view what, const std::string& mine,
                            const std::string& theirs) {
    h5::refuse(other.path, fmt::format("has {}{}, but {} in the same data set has {}", what, mine,
                                       first.path.string(), theirs));
  };
  const auto shape = [](const DataSetInfo& i) {
    return i.encoding == Encoding::jpeg
               ? "JPEGs of " + counted(i.channels, "channel")
               : fmt::format("rows of {} x {} x {}", i.height, i.width, i.channels);
  };
  if (first.external() != other.external())
    h5::refuse(other.path,
               fmt::format("and {} are not of one kind: shards and other programs' files "
                           "cannot be one data set",
                           first.path.string()));
  if (shape(a) != shape(b)) disagree("", shape(b), shape(a));
  if (a.classes != b.classes) {
    disagree("the classes ", join(b.classes, ", "), join(a.classes, ", "));
  }
  if (a.mean != b.mean) disagree("mean ", join(b.mean, ", "), join(a.mean, ", "));
  if (a.stddev != b.stddev) {
    disagree("stddev ", join(b.stddev, ", "), join(a.stddev, ", "));
  }
}

}  // namespace lockstep::data
