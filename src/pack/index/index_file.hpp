#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::pack {

/// The split that an image belongs to.
enum class Split : std::size_t { training, validation, test };
inline constexpr std::size_t split_count = 3;

/// One image of an index. Its name is at `name` among the names; in an archive its bytes begin at
/// `offset`, in a list it is the line of that number.
struct IndexRow {
  std::uint64_t offset = 0, name = 0;
  std::uint32_t bytes = 0;
  std::int32_t label = 0;  ///< index into the classes of this index file
};

/// A folder below a source, and how many images are in it itself.
struct ImageFolder {
  std::string_view path;
  std::size_t images = 0;
};

/// What such a folder stands for.
struct Place {
  Split split = Split::training;
  std::string label;  ///< empty: no class; its images are left out
};

/// A name that is in a list or a tar twice: in the lines, or at the bytes, `first` and `second`.
struct Repeat {
  std::string name;
  std::uint64_t first = 0, second = 0;
  std::string first_label, second_label;
  std::size_t count = 0;  ///< of all such rows but the first of each name
};

/// A file with all images of one folder, list or archive, so that one rank looks them up once and
/// no rank holds a million names in memory: every rank maps the file instead. It is written piece
/// by piece, in memory that does not grow with the images (but for watch_repeats(), which takes 32
/// bytes each), and appears when it is complete. Throws InputError naming the path.
class IndexWriter {
 public:
  explicit IndexWriter(std::filesystem::path path);
  ~IndexWriter();
  void add_class(std::string_view name) { label_of(name); }  ///< or a folder; may have no images
  void add(Split split, std::string_view name, std::string_view label, std::uint64_t offset = 0,
           std::uint32_t bytes = 0);
  /// The labels come from the data, not from folders: if all are numbers they are used as such.
  void labels_are_given() { given_ = true; }
  /// The list that has the labels; else they are in the folder or the archive itself.
  void set_list(std::filesystem::path list) { list_ = std::move(list); }
  /// Images were added with their folders as labels: gives each folder its split and its class.
  void settle(
      const std::function<std::vector<Place>(const std::vector<ImageFolder>& folders)>& decide);
  /// From here on, add() remembers names, whose paths count from `root`.
  void watch_repeats(std::filesystem::path root) {
    root_ = std::move(root);
    watched_ = true;
  }
  /// The first name that was added again, with the same label or with another one.
  std::optional<Repeat> find_repeat(bool other_label);
  /// A file or folder is left out. The first one is kept.
  void ignore(std::string_view name) {
    if (++ignored_ == 1) first_ignored_ = name;
  }
  /// Something that the user should know.
  void remark(const std::string& text) { remarks_ += text + '\n'; }
  /// A .json does not say the label of an image; `what` describes it. The first one is kept.
  void pass_over_json(const std::string& what) {
    if (++passed_json_ == 1) first_json_ = what;
  }
  /// The split for rows that do not name one.
  void set_split(Split split) { split_ = split; }
  /// `origin`: the folder, list or archive; `content`: the archive or its unpacked copy.
  void finish(const std::filesystem::path& origin, const std::filesystem::path& content,
              const FileStamp& stamp);

 private:
  struct Column;
  struct Seen {
    std::uint64_t hash = 0, name = 0, offset = 0;
    std::int32_t label = 0;
  };
  std::int32_t label_of(std::string_view name);

  std::filesystem::path path_;
  std::map<std::string, std::int32_t, std::less<>> labels_;
  std::unique_ptr<Column> names_;
  std::array<std::unique_ptr<Column>, split_count> rows_;
  std::filesystem::path list_, root_;
  std::string first_json_, first_ignored_, remarks_;
  std::vector<Seen> seen_;
  std::uint64_t ignored_ = 0, passed_json_ = 0;
  Split split_ = Split::training;
  bool given_ = false, watched_ = false;
};

/// A mapped index. Throws InputError naming it when it is incomplete.
class IndexFile {
 public:
  explicit IndexFile(const std::filesystem::path& path);
  ~IndexFile();
  IndexFile(IndexFile&&) noexcept;
  IndexFile& operator=(IndexFile&&) = delete;

  std::size_t rows(Split split) const;
  const IndexRow& row(Split split, std::size_t row) const;
  std::string_view name(const IndexRow& row) const;
  /// Where a label of classes() is first given, for messages: "names.txt, line 7".
  std::string place_of(std::size_t label) const;
  const std::vector<std::string>& classes() const { return classes_; }  ///< by IndexRow::label
  /// The list of paths and labels that was read; empty: none.
  const std::filesystem::path& list() const { return list_; }
  const std::filesystem::path& origin() const { return origin_; }
  const std::filesystem::path& content() const { return content_; }  ///< empty for a folder or list
  FileStamp stamp() const;
  Split split() const;
  bool labels_are_given() const;
  std::uint64_t ignored_files() const;  ///< and folders
  const std::string& first_ignored() const { return first_ignored_; }
  const std::vector<std::string>& remarks() const { return remarks_; }
  std::uint64_t passed_json() const;
  const std::string& first_json() const { return first_json_; }
  std::uint32_t checksum() const;  ///< of the whole content

 private:
  friend class IndexWriter;
  struct Header;
  const Header& header() const;
  std::filesystem::path origin_, content_, list_;
  std::string first_json_, first_ignored_;
  std::vector<std::string> remarks_, classes_;
  const std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::pack
