#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <regex>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/shard/shard_file.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/shard/data_set.hpp"

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
               : fmt::format(
                     "rows of {} x {} x {}{}", i.height, i.width, i.channels,
                     i.element == Element::u8 ? "" : std::string(" ") + choice_name(i.element));
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
  if (a.task != b.task) disagree("", choice_name(b.task), choice_name(a.task));
  if (a.classes != b.classes) {
    disagree("the classes ", join(b.classes, ", "), join(a.classes, ", "));
  }
  if (const std::string mine = say_no_data(b), theirs = say_no_data(a); mine != theirs)
    disagree("as no data ", mine, theirs);
  if (a.channel_names != b.channel_names)
    disagree("the channels ", join(b.channel_names, ", "), join(a.channel_names, ", "));
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

namespace {

std::string without_blanks(const std::string& text) {
  constexpr const char* blanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// All texts once, sorted. A number is most likely meant as one: as texts, 10 comes before 2.
std::vector<std::string> sorted_texts(std::span<const ShardFile> files) {
  std::vector<std::string> names;
  for (const ShardFile& file : files) {
    for (const std::string& text : file.label_texts)
      if (looks_like_number(text))
        h5::refuse(file.path, fmt::format("a label is the text \"{}\": write labels that are "
                                          "numbers as numbers, or list the names of all classes "
                                          "in a data set 'classes'",
                                          text));
    names.insert(names.end(), file.label_texts.begin(), file.label_texts.end());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    const std::string bare = without_blanks(name);
    if (bare != name && std::binary_search(names.begin(), names.end(), bare))
      h5::refuse(files.front().path,
                 fmt::format("or another file of the data set has the labels \"{}\" and \"{}\", "
                             "which differ by blanks alone: write one of them",
                             bare, name));
  }
  return names;
}

}  // namespace

std::string classes_in_order(std::span<const std::string> names) {
  constexpr std::size_t listed = 4;
  std::vector<std::string> parts;
  for (std::size_t c = 0; c < names.size(); ++c)
    if (c < listed || c + 1 == names.size())
      parts.push_back(fmt::format("{}{} {}", c > listed ? "... " : "", c, names[c]));
  return "classes in the order of their names: " + join(parts, ", ");
}

bool number_texts(std::span<const ShardFile> files, const ExternalSpec& spec, DataSetInfo& info,
                  std::span<std::int32_t> labels) {
  const bool texts = !files.front().label_texts.empty();
  for (const ShardFile& file : files)
    if (file.label_texts.empty() == texts)
      h5::refuse(file.path,
                 fmt::format("and {} are not of one kind: the labels of one are texts, those of "
                             "the other are numbers",
                             files.front().path.string()));
  if (!texts) return false;
  const bool listed = !info.classes.empty(), sorted = !listed && spec.like == nullptr;
  if (!listed) info.classes = sorted ? sorted_texts(files) : spec.like->classes;
  std::unordered_map<std::string_view, std::int32_t> class_of;
  for (const std::string& name : info.classes)
    class_of.emplace(name, static_cast<std::int32_t>(class_of.size()));
  auto label = labels.begin();
  for (const ShardFile& file : files)
    for (std::size_t row = 0; row < file.info.rows; ++row, ++label) {
      const std::string& text = file.label_texts[static_cast<std::size_t>(*label)];
      const auto found = class_of.find(text);
      if (found == class_of.end())
        h5::refuse(file.path,
                   fmt::format("row {} has the label \"{}\", which is not a class {}", row, text,
                               listed ? "that the file names" : "of the training set"));
      *label = found->second;
    }
  return sorted;
}

namespace {

void replace(hid_t file, const std::filesystem::path& path, const char* name,
             std::span<const float> values) {
  const h5::Attribute attribute(H5Aopen(file, name, H5P_DEFAULT));
  if (!attribute) h5::refuse_with_cause(path, fmt::format("has no attribute '{}'", name));
  const h5::Space space(H5Aget_space(attribute.get()));
  if (H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(values.size()))
    h5::refuse(path, fmt::format("the attribute '{}' is not one value for each of {} channels",
                                 name, values.size()));
  if (H5Awrite(attribute.get(), H5T_NATIVE_FLOAT, values.data()) < 0)
    h5::refuse_with_cause(path, fmt::format("the attribute '{}' cannot be written", name));
}

void synchronise(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fsync(file.get()) != 0) fail_by_system(path.string(), errno);
}

}  // namespace

void set_normalisation(const std::filesystem::path& shard, std::span<const float> mean,
                       std::span<const float> stddev) {
  {
    const h5::Session session;
    const h5::Properties access = h5::file_access();
    require_regular(shard);
    h5::File file(H5Fopen(shard.c_str(), H5F_ACC_RDWR, access.get()));
    if (!file) h5::refuse_with_cause(shard, "cannot be opened for writing");
    replace(file.get(), shard, "mean", mean);
    replace(file.get(), shard, "stddev", stddev);
    // Closing writes; a full disk shows here or never.
    if (H5Fclose(file.release()) < 0) h5::refuse_with_cause(shard, "cannot be written");
  }
  synchronise(shard);
}

}  // namespace lockstep::data
