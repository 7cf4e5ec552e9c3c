#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file_stamp.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::data {

/// To which rows an image belongs.
enum class Part : std::size_t { training, validation, test };
inline constexpr std::size_t kinds_of_rows = 3;

/// One image of an index: its name is at `name` in the names; in an archive its bytes are those
/// from `offset`.
struct IndexRow {
  std::uint64_t offset = 0, name = 0;
  std::uint32_t bytes = 0;
  std::int32_t label = 0;  ///< in the index's own list of classes
};

/// A file with all images of one folder, list or archive, so that they are looked for once, by one
/// rank, and no rank holds a million names in memory: every rank maps the file instead. It is
/// written piece by piece, in memory that does not grow with the images, and appears when it is
/// whole. Throws InputError naming the path.
class IndexWriter {
 public:
  explicit IndexWriter(std::filesystem::path path);
  ~IndexWriter();
  void add_class(std::string_view name) { label_of(name); }  ///< one without images, maybe
  void add(Part part, std::string_view name, std::string_view label, std::uint64_t offset = 0,
           std::uint32_t bytes = 0);
  /// Labels are the data's own, not folders' names: where all are numbers they are used as such.
  void labels_are_given() { given_ = true; }
  void ignore_file() { ++ignored_; }
  /// Where its rows were told to go, if they did not know better.
  void set_part(Part part) { part_ = part; }
  /// `origin`: the folder, list or archive; `content`: the archive itself where it was unpacked.
  void finish(const std::filesystem::path& origin, const std::filesystem::path& content,
              const FileStamp& stamp);

 private:
  struct Column;
  std::int32_t label_of(std::string_view name);

  std::filesystem::path path_;
  std::map<std::string, std::int32_t, std::less<>> labels_;
  std::unique_ptr<Column> names_;
  std::array<std::unique_ptr<Column>, kinds_of_rows> rows_;
  std::uint64_t ignored_ = 0;
  Part part_ = Part::training;
  bool given_ = false;
};

/// An index, mapped. Throws InputError naming it when it is not whole.
class IndexFile {
 public:
  explicit IndexFile(const std::filesystem::path& path);
  ~IndexFile();
  IndexFile(IndexFile&&) noexcept;
  IndexFile& operator=(IndexFile&&) = delete;

  std::size_t rows(Part part) const;
  const IndexRow& row(Part part, std::size_t row) const;
  std::string_view name(const IndexRow& row) const;
  const std::vector<std::string>& classes() const { return classes_; }  ///< by IndexRow::label
  const std::filesystem::path& origin() const { return origin_; }
  const std::filesystem::path& content() const { return content_; }  ///< empty for a folder or list
  FileStamp stamp() const;
  Part part() const;
  bool labels_are_given() const;
  std::uint64_t ignored_files() const;
  std::uint32_t checksum() const;  ///< of everything in it

 private:
  friend class IndexWriter;
  struct Header;
  const Header& header() const;
  std::filesystem::path origin_, content_;
  std::vector<std::string> classes_;
  const std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::data
