#include "pack/index/layout.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::pack {
namespace {

using Path = std::vector<std::string_view>;

Path parts_of(std::string_view path) {
  Path parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (!part.empty() && part != ".") parts.push_back(part);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

std::optional<Split> split_in(std::string_view folder) {
  Split split = Split::training;
  return names_a_split(folder, split) ? std::optional(split) : std::nullopt;
}

/// True for "seg_train", "test1" and "Test Images", but not for "contest": a word names a split.
bool has_word_of(std::string_view folder, bool training) {
  const auto is_letter = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  if (const auto split = split_in(folder)) return (*split == Split::training) == training;
  for (std::size_t at = 0; at < folder.size();) {
    std::size_t end = at;
    while (end < folder.size() && is_letter(static_cast<unsigned char>(folder[end]))) ++end;
    const auto split = split_in(folder.substr(at, end - at));
    if (split && (*split == Split::training) == training) return true;
    at = end + 1;
  }
  return false;
}

/// A folder right below the root: a class, or a split.
struct Child {
  std::size_t images = 0, loose = 0;  ///< in all; in this folder itself
  std::set<std::string_view> inner;   ///< the folders right below it that lead to images
  std::set<std::string_view> last;    ///< the names of the folders below it that hold images
  bool has_classes() const { return !inner.empty(); }
};

class Layout {
 public:
  Layout(const LayoutSpec& spec, const std::vector<ImageFolder>& folders)
      : spec_(spec), split_(spec.split) {
    for (const ImageFolder& folder : folders) {
      paths_.push_back(parts_of(folder.path));
      images_.push_back(folder.images);
    }
    if (spec.below_shared) root_ = shared();
    collect();
    splits_ = are_splits();
    if (splits_) {
      require_splits();
      return;
    }
    if (spec.below_shared) take_split_of_root();
    if (!spec.names_are_given) require_no_doubt();
  }

  std::vector<Place> places() const {
    std::vector<Place> places;
    for (const Path& path : paths_) places.push_back(place(path));
    if (spec_.whole) require_no_empty_class(places);
    return places;
  }

 private:
  Place place(const Path& path) const {
    const std::size_t at = root_ + (splits_ ? 1 : 0);
    if (path.size() <= at || !below_root(path)) return {};
    Place place{split_, std::string(path[at])};
    if (!splits_) return place;
    const auto split = split_in(path[root_]);
    if (!split) return {};
    if (spec_.split != Split::validation) place.split = *split;
    return place;
  }

  /// Folders without images may be anywhere.
  bool below_root(const Path& path) const {
    return path.size() >= root_ &&
           std::equal(root_path_.begin(), at(root_path_, root_), path.begin());
  }

  static Path::const_iterator at(const Path& path, std::size_t parts) {
    return path.begin() + static_cast<std::ptrdiff_t>(parts);
  }

  /// How many parts the paths of all images have in common. The last part of a path is a class if
  /// there is no other.
  std::size_t shared() {
    bool first = true, one = true;
    for (std::size_t f = 0; f < paths_.size(); ++f) {
      if (images_[f] == 0) continue;
      const Path& path = paths_[f];
      one = one && (first || path == root_path_);
      if (first) root_path_ = path;
      first = false;
      const auto [end, other] =
          std::mismatch(root_path_.begin(), root_path_.end(), path.begin(), path.end());
      root_path_.erase(end, root_path_.end());
    }
    return root_path_.size() - (one && !root_path_.empty() ? 1 : 0);
  }

  void collect() {
    children_.clear();
    for (std::size_t f = 0; f < paths_.size(); ++f) {
      const Path& path = paths_[f];
      if (images_[f] == 0 || path.size() <= root_) continue;
      Child& child = children_[path[root_]];
      child.images += images_[f];
      if (path.size() == root_ + 1) {
        child.loose += images_[f];
        continue;
      }
      child.inner.insert(path[root_ + 1]);
      child.last.insert(path.back());
    }
  }

  bool are_splits() const {
    std::size_t splits = 0;
    for (const auto& [name, child] : children_) {
      const auto split = child.has_classes() ? split_in(name) : std::nullopt;
      if (split == Split::training) return true;
      splits += split ? 1 : 0;
    }
    return splits > 0 && splits == children_.size();
  }

  /// As the user would name it.
  std::string path_of(std::string_view child) const {
    std::string inner;
    for (std::size_t p = 0; p < root_; ++p) inner.append(root_path_[p]).append(1, '/');
    inner += child;
    return spec_.below_shared ? fmt::format("{}: {}", spec_.source.string(), inner)
                              : (spec_.source / inner).string();
  }

  std::string remedy(std::string_view training, std::string_view validation) const {
    if (spec_.below_shared) return "make one tar of each, and give one of them as --val";
    const auto inner = [&](std::string_view name) -> std::string {
      if (name.empty()) return "FOLDER";
      const Child& child = children_.at(name);
      const bool nested = child.inner.size() == 1 && !child.last.contains(*child.inner.begin());
      return path_of(name) + (nested ? '/' + std::string(*child.inner.begin()) : "");
    };
    return fmt::format("name the folders that count: {} --val {}", inner(training),
                       inner(validation));
  }

  void require_splits() const {
    std::map<Split, std::string_view> found;
    std::string_view training;
    for (const auto& [name, child] : children_)
      if (child.has_classes() && split_in(name) == Split::training) training = name;
    for (const auto& [name, child] : children_) {
      const auto split = split_in(name);
      require(split && child.has_classes(),
              fmt::format("{}: holds images and is next to {}/, but is not a val/ or test/ of "
                          "class folders; to leave it out, {}",
                          path_of(name), training, remedy(training, "")));
      const auto [one, is_new] = found.emplace(*split, name);
      const bool for_training = *split == Split::training;
      require(
          is_new,
          fmt::format("{} and {}: which of them is for {}? To leave one out, {}",
                      path_of(one->second), path_of(name), for_training ? "training" : "validation",
                      remedy(training.empty() ? name : training, for_training ? "" : name)));
    }
    require(
        spec_.split != Split::validation || found.size() == 1,
        fmt::format("{}: is for validation, but holds {}/ and {}/: name one of the two",
                    spec_.source.string(), children_.begin()->first, children_.rbegin()->first));
  }

  /// "photos/val/cat" and "photos/val/dog" are of a split, also where a tar holds no other.
  void take_split_of_root() {
    for (std::size_t part = root_; part-- > 0;) {
      const auto split = split_in(root_path_[part]);
      if (!split) continue;
      if (spec_.split != Split::validation) split_ = *split;
      root_ = part + 1;
      return collect();
    }
  }

  void require_no_doubt() const {
    Suspect training, other;
    for (const auto& [name, child] : children_) {
      const auto split = split_in(name);
      const Suspect now{name, split.has_value(), child.loose == 0};
      if (has_word_of(name, true) && !training.plain) training = now;
      if (has_word_of(name, false) && !other.plain) other = now;
    }
    if (!training.name.empty() && !other.name.empty() && training.name != other.name &&
        (training.plain || other.plain || (training.only_folders && other.only_folders)))
      doubt(training.name, other.name);
    std::unordered_map<std::string_view, std::string_view> first;  // where a name was seen first
    for (const auto& [name, child] : children_) {
      std::map<std::string_view, std::size_t> common;
      for (const std::string_view last : child.last) {
        const auto [seen, is_new] = first.emplace(last, name);
        if (!is_new && ++common[seen->second] == 2) doubt_by_folders(seen->second, name);
      }
    }
  }

  static constexpr const char* how_to_insist =
      "if they are the classes, list them in a file (--class-names)";

  /// A child that may be a split, by its name.
  struct Suspect {
    std::string_view name;
    bool plain = false, only_folders = false;
  };

  [[noreturn]] void doubt(std::string_view training, std::string_view other) const {
    const bool classes = children_.at(training).has_classes();
    throw InputError(fmt::format(
        "{} and {}: look like splits, and not like classes; {}; {}", path_of(training),
        path_of(other),
        classes ? remedy(training, other)
                : "as splits they would hold class folders, and where a file has the labels, that "
                  "is what to pack",
        how_to_insist));
  }

  [[noreturn]] void doubt_by_folders(std::string_view one, std::string_view two) const {
    const auto& a = children_.at(one).last;
    const auto& b = children_.at(two).last;
    std::vector<std::string_view> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    throw InputError(fmt::format(
        "{} and {}: hold folders of the same names ({}, {}{}): which are the classes? If those "
        "inside are, {}; {}",
        path_of(one), path_of(two), both[0], both[1], both.size() > 2 ? ", ..." : "",
        remedy(one, two), how_to_insist));
  }

  void require_no_empty_class(const std::vector<Place>& places) const {
    std::set<std::pair<Split, std::string_view>> full;
    for (std::size_t f = 0; f < places.size(); ++f)
      if (images_[f] > 0) full.emplace(places[f].split, places[f].label);
    for (std::size_t f = 0; f < places.size(); ++f) {
      const Place& place = places[f];
      if (place.label.empty() || full.contains({place.split, place.label})) continue;
      const std::string within = splits_ ? std::string(paths_[f][root_]) + '/' : "";
      throw InputError(fmt::format(
          "{}: an empty class folder: no .jpg, .jpeg, .png, .webp or .bmp in it; add images or "
          "remove it",
          path_of(within + place.label)));
    }
  }

  const LayoutSpec& spec_;
  Split split_;
  std::vector<Path> paths_;
  std::vector<std::size_t> images_;
  Path root_path_;
  std::size_t root_ = 0;  ///< the first parts of root_path_ that are above the classes or splits
  bool splits_ = false;
  std::map<std::string_view, Child> children_;
};

}  // namespace

std::vector<Place> place_folders(const LayoutSpec& spec, const std::vector<ImageFolder>& folders) {
  return Layout(spec, folders).places();
}

bool names_a_split(std::string_view folder, Split& split) {
  std::string name = plain_form(folder);
  std::replace(name.begin(), name.end(), ' ', '-');
  for (const std::string_view ending : {"set", "data", "images"})
    if (name.ends_with(ending)) {
      name.resize(name.size() - ending.size());
      if (name.ends_with('-')) name.pop_back();
      break;
    }
  if (name == "train" || name == "training")
    split = Split::training;
  else if (name == "val" || name == "valid" || name == "validation")
    split = Split::validation;
  else if (name == "test" || name == "testing")
    split = Split::test;
  else
    return false;
  return true;
}

bool is_system_folder(std::string_view name) {
  constexpr std::array<std::string_view, 6> known{
      "@eaDir", "__MACOSX", "#recycle", "@Recycle", "$RECYCLE.BIN", "System Volume Information"};
  return std::find(known.begin(), known.end(), name) != known.end();
}

}  // namespace lockstep::pack
