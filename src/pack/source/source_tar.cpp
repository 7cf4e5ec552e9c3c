#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"
#include "pack/archive/tar.hpp"
#include "pack/index/layout.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr std::size_t longest_label = 4096, largest_json = 1 << 20;
/// Of one sample: a hostile tar must not fill the memory with names.
constexpr std::size_t most_files = 100'000, most_sample_bytes = 32 << 20;
constexpr std::uint64_t largest_image = std::uint64_t{1} << 28;

std::string_view folder_in(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  return slash == name.npos ? std::string_view() : name.substr(0, slash);
}

/// As in WebDataset: the files of one sample share their name up to its first dot.
std::string_view key_of(std::string_view name) {
  const std::size_t begin = name.rfind('/') + 1, dot = name.find('.', begin);
  return name.substr(0, dot);
}

std::string_view ending_of(std::string_view name) {
  const std::string_view key = key_of(name);
  return key.size() == name.size() ? std::string_view() : name.substr(key.size() + 1);
}

bool left_out(std::string_view name) {
  for (std::size_t at = 0; at < name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view piece = name.substr(at, end - at);
    if (piece != "." && piece != ".." && is_left_out(piece)) return true;
    at = end + 1;
  }
  return false;
}

/// The name without meaningless parts: "./", doubled slashes at the beginning.
std::string_view plain(std::string_view name) {
  for (;;) {
    if (name.starts_with("./"))
      name.remove_prefix(2);
    else if (name.starts_with('/'))
      name.remove_prefix(1);
    else
      return name;
  }
}

class TarIndexer {
 public:
  TarIndexer(const TarIndexSpec& spec, TarReader& reader, IndexWriter& index)
      : spec_(spec), reader_(reader), index_(index) {}

  void run() {
    for (TarMember member; reader_.next(member);) {
      member.name = plain(member.name);
      if (left_out(member.name)) {
        if (named_as_image(member.name)) index_.ignore(member.name);
        continue;
      }
      if (member.kind == TarMember::Kind::folder && spec_.alone) folders_.push_back(member.name);
      if (member.kind == TarMember::Kind::folder || member.kind == TarMember::Kind::other) continue;
      if (!sample_.empty() && key_of(sample_.front().name) != key_of(member.name)) end_sample();
      sample_bytes_ += sizeof(TarMember) + member.name.size();
      if (sample_.size() >= most_files || sample_bytes_ > most_sample_bytes)
        refuse(member,
               fmt::format("{} files share its name up to the dot: more than {}, or than fit into "
                           "{} MB of names",
                           sample_.size() + 1, most_files, most_sample_bytes >> 20));
      sample_.push_back(std::move(member));
    }
    end_sample();
    require(images_ > 0,
            fmt::format("{}: holds no {}{}", spec_.tar.string(), image_endings,
                        passed_over_.empty()
                            ? ""
                            : fmt::format(" of a sample: as in WebDataset, a sample's key ends at "
                                          "the first dot, so {} is no image of {}",
                                          passed_over_, key_of(passed_over_))));
    if (const auto twice = index_.find_repeat(false)) refuse_repeat(*twice);
    if (const auto twice = index_.find_repeat(true)) refuse_repeat(*twice);
    if (first_given_) index_.labels_are_given();
    if (spec_.labelled && !first_given_) settle();
  }

 private:
  [[noreturn]] void refuse(const TarMember& member, std::string_view what) const {
    throw InputError(fmt::format("{}: {} (at byte {}): {}", spec_.tar.string(),
                                 one_line(member.name), member.header, what));
  }

  /// Unpacking the tar gives the last one only.
  [[noreturn]] void refuse_repeat(const Repeat& twice) const {
    throw InputError(fmt::format(
        "{}: {}: two images have this name, at bytes {} and {} (an archive that was appended to "
        "keeps the old ones): make the archive again",
        spec_.tar.string(), one_line(twice.name), twice.first, twice.second));
  }

  /// Classes and splits by the folders.
  void settle() {
    for (const std::string& folder : folders_) index_.add_class(folder);
    index_.settle([&](const std::vector<ImageFolder>& folders) {
      if (std::all_of(folders.begin(), folders.end(),
                      [](const ImageFolder& one) { return one.images == 0 || one.path.empty(); }))
        refuse(first_loose_, no_label);
      return place_folders({.source = spec_.tar,
                            .split = spec_.split,
                            .below_shared = true,
                            .names_are_given = spec_.names_are_given,
                            .whole = spec_.alone},
                           folders);
    });
  }

  void end_sample() {
    const std::optional<std::string> label = spec_.labelled ? sample_label() : std::nullopt;
    std::size_t images = 0;
    for (const TarMember& member : sample_) {
      if (!named_as_image(member.name)) {
        // What is in a .json is told anyway.
        if (!label && ending_of(member.name) != "json") index_.ignore(member.name);
        continue;
      }
      // "key.seg.png" next to "key.jpg" is not the sample's image.
      if (label && ending_of(member.name).find('.') != std::string_view::npos) {
        if (passed_over_.empty()) passed_over_ = member.name;
        continue;
      }
      if (label && ++images > 1) refuse(member, "is a second image of one sample");
      add(member, label);
    }
    sample_.clear();
    sample_bytes_ = 0;
  }

  /// From .cls or .json, where the sample has one.
  std::optional<std::string> sample_label() {
    const TarMember *cls = nullptr, *json = nullptr, *image = nullptr;
    for (const TarMember& member : sample_) {
      if (ending_of(member.name) == "cls") cls = &member;
      if (ending_of(member.name) == "json") json = &member;
      if (named_as_image(member.name)) image = &member;
    }
    if (cls != nullptr && image == nullptr)
      refuse(*cls, "has no image next to it: the files of one sample must follow each other");
    if (image == nullptr && json != nullptr)
      index_.pass_over_json(
          fmt::format("{}: {} has no image next to it", spec_.tar.string(), json->name));
    if (image == nullptr) return {};
    if (cls != nullptr) return label_in_cls(*cls);
    return json != nullptr ? label_in_json(*json) : std::nullopt;
  }

  std::string label_in_cls(const TarMember& member) const {
    std::string text = reader_.content(member, longest_label);
    constexpr std::string_view space = " \t\r\n";
    const std::size_t first = text.find_first_not_of(space);
    if (first == text.npos) refuse(member, "is empty: expected a label");
    text = text.substr(first, text.find_last_not_of(space) - first + 1);
    require_label(member, text);
    return text;
  }

  void require_label(const TarMember& member, std::string_view label) const {
    if (std::any_of(label.begin(), label.end(),
                    [](unsigned char c) { return c < ' ' || c == 0x7F; }))
      refuse(member, fmt::format("\"{}\" is no label: expected one line without control characters",
                                 one_line(label.substr(0, 100))));
  }

  std::optional<std::string> label_in_json(const TarMember& member) {
    const std::string text = reader_.content(member, largest_json);
    const auto json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) refuse(member, "is not JSON");
    if (!json.is_object()) {
      index_.pass_over_json(fmt::format("{}: {}", spec_.tar.string(), member.name));
      return {};
    }
    for (const char* key : {"label", "cls", "class"}) {
      const auto found = json.find(key);
      if (found == json.end()) continue;
      if (found->is_number_unsigned()) return std::to_string(found->get<std::uint64_t>());
      if (found->is_string() && !found->get_ref<const std::string&>().empty()) {
        require_label(member, found->get_ref<const std::string&>());
        return found->get<std::string>();
      }
      // A list may be nested too deep to be written out recursively.
      const std::string what = found->is_array()    ? "an array"
                               : found->is_object() ? "an object"
                                                    : found->dump().substr(0, 100);
      refuse(member, fmt::format("\"{}\" is {}: expected a name or a number from 0", key, what));
    }
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items())
      if (keys.size() < 5)
        keys.push_back(nlohmann::json(key.substr(0, 40))
                           .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    index_.pass_over_json(
        fmt::format("{}: {} has {}", spec_.tar.string(), member.name, join(keys, ", ")));
    return {};
  }

  void add(const TarMember& member, const std::optional<std::string>& label) {
    if (member.kind == TarMember::Kind::link)
      refuse(member,
             "is a link, which is not followed: make the archive with tar --dereference "
             "--hard-dereference");
    if (member.kind == TarMember::Kind::sparse)
      refuse(member, "is stored as a sparse file, which cannot be read: make the archive again");
    if (member.bytes > largest_image)
      refuse(member,
             fmt::format("has {} bytes; an image has at most {}", member.bytes, largest_image));
    ++images_;
    if (!spec_.labelled) return put(member, spec_.split, no_class);
    const std::string_view folder = folder_in(member.name);
    if (!label && folder.empty() && first_given_) refuse(member, no_label);
    (label ? first_given_ : first_in_folder_) = true;
    if (first_given_ && first_in_folder_)
      refuse(member, label ? "has a label file, but images before it had only a class folder"
                           : "has no label file of the same name, up to its first dot, but images "
                             "before it had one");
    if (label) return put(member, split_of(member.name), *label);
    if (folder.empty() && first_loose_.name.empty()) first_loose_ = member;
    put(member, Split::training, folder);
  }

  void put(const TarMember& member, Split split, std::string_view label) {
    index_.add(split, member.name, label, member.offset, static_cast<std::uint32_t>(member.bytes));
  }

  /// "train/000/1.jpg" with a label file is of the training split.
  Split split_of(std::string_view name) const {
    const std::string_view folder = folder_in(name);
    for (std::size_t at = 0; at < folder.size() && spec_.split != Split::validation;) {
      const std::size_t end = std::min(folder.find('/', at), folder.size());
      Split found = spec_.split;
      if (end < folder.size() && names_a_split(folder.substr(at, end - at), found)) return found;
      at = end + 1;
    }
    return spec_.split;
  }

  static constexpr const char* no_label =
      "has no label: neither a .cls or .json (\"label\", \"cls\" or \"class\") of the same name, "
      "up "
      "to its first dot, next to it, nor a class folder";

  const TarIndexSpec& spec_;
  TarReader& reader_;
  IndexWriter& index_;
  std::vector<TarMember> sample_;
  std::size_t sample_bytes_ = 0;  ///< of the sample's names and places
  std::size_t images_ = 0;
  std::vector<std::string> folders_;  ///< members that are folders
  TarMember first_loose_;             ///< an image in no folder
  std::string passed_over_;           ///< the first image that is not its sample's
  bool first_given_ = false, first_in_folder_ = false;
};

}  // namespace

void index_tar(const TarIndexSpec& spec, IndexWriter& index) {
  const Descriptor file = open_regular(spec.content);
  require(static_cast<bool>(file),
          fmt::format("{}: {}", spec.content.string(), std::strerror(errno)));
  TarReader reader(file.get(), stamp_of(file.get(), spec.content).bytes, spec.tar);
  index.watch_repeats({});
  TarIndexer(spec, reader, index).run();
}

}  // namespace lockstep::pack
