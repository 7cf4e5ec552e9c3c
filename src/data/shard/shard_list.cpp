#include "data/shard/shard_list.hpp"

#include <fmt/core.h>
#include <glob.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <utility>

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
    h5::refuse(path,
               "holds no *.h5 file; give a shard or the folder that the shards are in ('lockstep "
               "pack' makes shards of images)");
  }
  std::sort(files.begin(), files.end());
  // pack writes no shard of whose images it skipped all, and lists what it skipped.
  const bool may_lack = std::filesystem::exists(path / ".." / "skipped.txt", error);
  if (const std::string missing = say_missing_parts(files); !missing.empty() && !may_lack)
    h5::refuse(path, missing +
                         "; restore it or pack again, or name the shards that you mean by a "
                         "pattern");
  return files;
}

std::string say_missing_parts(std::span<const std::filesystem::path> files) {
  static const std::regex numbered("(.*-)([0-9]{5,9})(-of-([0-9]{5,9})[.].*)");
  std::map<std::pair<std::string, std::string>, std::set<std::string>> series;
  for (const std::filesystem::path& file : files) {
    const std::string name = file.filename().string();
    std::smatch part;
    if (std::regex_match(name, part, numbered)) series[{part[1], part[3]}].insert(part[2]);
  }
  for (const auto& [around, numbers] : series) {
    const auto count = static_cast<std::size_t>(std::stoul(around.second.substr(4)));
    for (std::size_t i = 0; i < count; ++i) {
      const std::string number = fmt::format("{:0{}}", i, numbers.begin()->size());
      if (!numbers.contains(number))
        return fmt::format(
            "of the {} that their names count, {} here: {}{}{} is missing", counted(count, "shard"),
            numbers.size() == 1 ? std::string("1 is") : fmt::format("{} are", numbers.size()),
            around.first, number, around.second);
    }
  }
  return {};
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
  if (first.set_names != other.set_names)
    disagree("", "images " + join(other.set_names, " and labels "),
             "images " + join(first.set_names, " and labels ") +
                 "; name them by --data.images and --data.labels");
  if (a.classes != b.classes) {
    disagree("the classes ", join(b.classes, ", "), join(a.classes, ", "));
  }
  if (a.mean != b.mean) disagree("mean ", join(b.mean, ", "), join(a.mean, ", "));
  if (a.stddev != b.stddev) {
    disagree("stddev ", join(b.stddev, ", "), join(a.stddev, ", "));
  }
}

void require_new(const ShardFile& file, std::span<const ShardFile> before) {
  constexpr std::size_t few = 16;  // rows that may be alike by chance
  for (const ShardFile& other : before) {
    const bool same_rows = !file.external() && file.info.rows >= few &&
                           other.info.rows == file.info.rows && other.rows_hash == file.rows_hash;
    if (same_rows || other.stamp == file.stamp)
      h5::refuse(file.path,
                 fmt::format("has the same rows as {} in the same data set: one of them is a copy",
                             other.path.string()));
  }
}

}  // namespace lockstep::data
