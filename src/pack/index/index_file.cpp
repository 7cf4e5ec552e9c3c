#include "pack/index/index_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <tuple>
#include <utility>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr char index_magic[8] = {'l', 's', 'i', 'n', 'd', 'e', 'x', '3'};

[[noreturn]] void fail(const fs::path& path) { fail_by_system(path.string(), errno); }

}  // namespace

/// After it come the texts (origin, content, list, first JSON, first file left out, remarks in
/// lines, classes, each ended by a NUL; padded to 8 bytes), the rows of each split, and the names,
/// each ended by a NUL.
struct IndexFile::Header {
  char magic[sizeof index_magic];
  std::uint32_t checksum, given;  ///< the checksum covers everything after it
  FileStamp stamp;
  std::uint64_t split, ignored, passed_json, classes, text_bytes, name_bytes;
  std::array<std::uint64_t, split_count> rows;

  std::size_t rows_at(std::size_t which) const {
    std::size_t at = sizeof(Header) + text_bytes;
    for (std::size_t p = 0; p < which; ++p) at += rows[p] * sizeof(IndexRow);
    return at;
  }
  std::size_t names_at() const { return rows_at(split_count); }
};

/// Collects bytes in an unnamed file next to the index.
struct IndexWriter::Column {
  static constexpr std::size_t kept = 2048 * sizeof(IndexRow);

  explicit Column(const fs::path& beside) : path(beside) {
    std::string name = beside.string() + '.' + std::string(6, 'X');
    file = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
    if (!file || ::unlink(name.c_str()) != 0) fail(path);
    buffer.reserve(kept);
  }

  void add(const void* from, std::size_t count) {
    if (buffer.size() + count > kept) flush();
    buffer.append(static_cast<const char*>(from), count);
    bytes += count;
  }

  void flush() {
    if (write_all(file.get(), buffer.data(), buffer.size()) != buffer.size()) fail(path);
    buffer.clear();
  }

  /// Calls use(bytes) for pieces of `kept` bytes, and the rest.
  void read_back(const auto& use) {
    flush();
    if (::lseek(file.get(), 0, SEEK_SET) != 0) fail(path);
    std::string piece(kept, '\0');
    for (std::size_t got = kept; got == kept;) {
      got = read_all(file.get(), piece.data(), kept);
      if (got < kept && errno != 0) fail(path);
      use(std::string_view(piece.data(), got));
    }
  }

  /// The text that begins at a place and ends with a NUL.
  std::string text_at(std::uint64_t place) {
    flush();
    std::string text;
    for (std::size_t end = text.npos; end == text.npos; end = text.find('\0')) {
      std::string piece(256, '\0');
      piece.resize(read_all_at(file.get(), piece.data(), piece.size(), place + text.size()));
      if (piece.empty()) fail(path);
      text += piece;
    }
    text.resize(text.find('\0'));
    return text;
  }

  const fs::path& path;
  Descriptor file;
  std::string buffer;
  std::uint64_t bytes = 0;
};

IndexWriter::IndexWriter(fs::path path)
    : path_(std::move(path)), names_(std::make_unique<Column>(path_)) {
  for (auto& rows : rows_) rows = std::make_unique<Column>(path_);
}

IndexWriter::~IndexWriter() = default;

std::int32_t IndexWriter::label_of(std::string_view name) {
  constexpr std::size_t most = std::size_t{1} << 22;
  const auto found = labels_.find(name);
  if (found != labels_.end()) return found->second;
  require(labels_.size() < most,
          fmt::format("more than {} classes or folders: {} is one more", most, one_line(name)));
  const auto label = static_cast<std::int32_t>(labels_.size());
  labels_.emplace(name, label);
  return label;
}

void IndexWriter::add(Split split, std::string_view name, std::string_view label,
                      std::uint64_t offset, std::uint32_t bytes) {
  require(name.find('\0') == name.npos && label.find('\0') == label.npos,
          fmt::format("{}: its name, or its label, has a NUL", one_line(name)));
  const IndexRow row{
      .offset = offset, .name = names_->bytes, .bytes = bytes, .label = label_of(label)};
  rows_[static_cast<std::size_t>(split)]->add(&row, sizeof row);
  names_->add(name.data(), name.size());
  names_->add("", 1);
  if (!watched_) return;
  const std::string path = (root_ / name).lexically_normal().string();
  const std::uint64_t high = crc32c(path.data(), path.size());
  const std::uint64_t low = ::crc32_z(0, reinterpret_cast<const Bytef*>(path.data()), path.size());
  seen_.push_back({high << 32 | low, row.name, offset, row.label});
}

std::optional<Repeat> IndexWriter::find_repeat(bool other_label) {
  std::sort(seen_.begin(), seen_.end(), [](const Seen& a, const Seen& b) {
    return std::tie(a.hash, a.name) < std::tie(b.hash, b.name);
  });
  std::optional<Repeat> found;
  const Seen *first = nullptr, *second = nullptr;
  std::size_t count = 0;
  for (std::size_t i = 1; i < seen_.size(); ++i) {
    const Seen &before = seen_[i - 1], &now = seen_[i];
    if (before.hash != now.hash || (before.label != now.label) != other_label) continue;
    ++count;
    if (second != nullptr && second->name < now.name) continue;
    first = &before;
    second = &now;
  }
  if (first == nullptr) return found;
  const auto label = [&](const Seen& seen) {
    const auto one = std::find_if(labels_.begin(), labels_.end(),
                                  [&](const auto& known) { return known.second == seen.label; });
    return one->first;
  };
  found = {names_->text_at(second->name),
           first->offset,
           second->offset,
           label(*first),
           label(*second),
           count};
  return found;
}

void IndexWriter::settle(
    const std::function<std::vector<Place>(const std::vector<ImageFolder>&)>& decide) {
  std::vector<ImageFolder> folders(labels_.size());
  for (const auto& [path, label] : labels_) folders[static_cast<std::size_t>(label)].path = path;
  const auto each_row = [](Column& rows, const auto& use) {
    rows.read_back([&](std::string_view piece) {
      for (std::size_t at = 0; at < piece.size(); at += sizeof(IndexRow)) {
        IndexRow row;
        std::memcpy(&row, piece.data() + at, sizeof row);
        use(row);
      }
    });
  };
  auto& added = rows_[static_cast<std::size_t>(Split::training)];
  each_row(*added,
           [&](const IndexRow& row) { ++folders[static_cast<std::size_t>(row.label)].images; });
  const std::vector<Place> places = decide(folders);
  labels_.clear();
  const std::unique_ptr<Column> all = std::exchange(added, std::make_unique<Column>(path_));
  each_row(*all, [&](IndexRow row) {
    const Place& place = places[static_cast<std::size_t>(row.label)];
    if (place.label.empty()) return ignore(ignored_ == 0 ? names_->text_at(row.name) : "");
    row.label = label_of(place.label);
    rows_[static_cast<std::size_t>(place.split)]->add(&row, sizeof row);
  });
}

void IndexWriter::finish(const fs::path& origin, const fs::path& content, const FileStamp& stamp) {
  std::vector<std::string_view> classes(labels_.size());
  for (const auto& [name, label] : labels_) classes[static_cast<std::size_t>(label)] = name;
  std::string text;
  for (const std::string& one :
       {origin.string(), content.string(), list_.string(), first_json_, first_ignored_, remarks_})
    text.append(one).append(1, '\0');
  for (const std::string_view name : classes) text.append(name).append(1, '\0');
  while (text.size() % alignof(IndexRow) != 0) text += '\0';

  IndexFile::Header header{};
  std::memcpy(header.magic, index_magic, sizeof index_magic);
  header.given = given_;
  header.stamp = stamp;
  header.split = static_cast<std::uint64_t>(split_);
  header.ignored = ignored_;
  header.passed_json = passed_json_;
  header.classes = classes.size();
  header.text_bytes = text.size();
  header.name_bytes = names_->bytes;
  for (std::size_t p = 0; p < split_count; ++p) header.rows[p] = rows_[p]->bytes / sizeof(IndexRow);

  PendingPieces file(path_, sizeof header);
  constexpr std::size_t covered = offsetof(IndexFile::Header, given);
  const std::string_view head(reinterpret_cast<const char*>(&header), sizeof header);
  header.checksum = crc32c(head.data() + covered, head.size() - covered);
  const auto add = [&](std::string_view piece) {
    file.add(piece);
    header.checksum = crc32c(piece.data(), piece.size(), header.checksum);
  };
  add(text);
  for (auto& rows : rows_) rows->read_back(add);
  names_->read_back(add);
  file.commit(head);
}

IndexFile::IndexFile(const fs::path& path) {
  const Descriptor file = open_regular(path);
  if (!file) fail(path);
  bytes_ = stamp_of(file.get(), path).bytes;
  const auto damaged = [&] {
    throw InputError(fmt::format("{}: is damaged; start again with --force", path.string()));
  };
  if (bytes_ < sizeof(Header)) damaged();
  void* mapped = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapped == MAP_FAILED) fail(path);
  begin_ = static_cast<const std::byte*>(mapped);
  const Header& head = header();
  constexpr std::size_t covered = offsetof(Header, given);
  const bool whole = std::memcmp(head.magic, index_magic, sizeof index_magic) == 0 &&
                     head.names_at() + head.name_bytes == bytes_ &&
                     crc32c(begin_ + covered, bytes_ - covered) == head.checksum;
  if (!whole) {
    ::munmap(mapped, bytes_);
    damaged();
  }
  // The pages read for the checksum need not stay: rows are wanted here and there.
  ::madvise(mapped, bytes_, MADV_DONTNEED);
  ::madvise(mapped, bytes_, MADV_RANDOM);
  const auto* text = reinterpret_cast<const char*>(begin_ + sizeof(Header));
  const auto next = [&] {
    std::string word = text;
    text += word.size() + 1;
    return word;
  };
  origin_ = next();
  content_ = next();
  list_ = next();
  first_json_ = next();
  first_ignored_ = next();
  std::istringstream lines(next());
  for (std::string line; std::getline(lines, line);) remarks_.push_back(line);
  for (std::uint64_t c = 0; c < head.classes; ++c) classes_.push_back(next());
}

IndexFile::~IndexFile() {
  if (begin_ != nullptr) ::munmap(const_cast<std::byte*>(begin_), bytes_);
}

IndexFile::IndexFile(IndexFile&& other) noexcept
    : origin_(std::move(other.origin_)),
      content_(std::move(other.content_)),
      list_(std::move(other.list_)),
      first_json_(std::move(other.first_json_)),
      first_ignored_(std::move(other.first_ignored_)),
      remarks_(std::move(other.remarks_)),
      classes_(std::move(other.classes_)),
      begin_(std::exchange(other.begin_, nullptr)),
      bytes_(other.bytes_) {}

const IndexFile::Header& IndexFile::header() const {
  return *reinterpret_cast<const Header*>(begin_);
}

std::size_t IndexFile::rows(Split split) const {
  return header().rows[static_cast<std::size_t>(split)];
}

const IndexRow& IndexFile::row(Split split, std::size_t row) const {
  const auto* at = begin_ + header().rows_at(static_cast<std::size_t>(split));
  return reinterpret_cast<const IndexRow*>(at)[row];
}

std::string_view IndexFile::name(const IndexRow& row) const {
  return reinterpret_cast<const char*>(begin_ + header().names_at() + row.name);
}

std::string IndexFile::place_of(std::size_t label) const {
  for (std::size_t split = 0; split < split_count; ++split)
    for (std::size_t at = 0; at < rows(static_cast<Split>(split)); ++at) {
      const IndexRow& one = row(static_cast<Split>(split), at);
      if (static_cast<std::size_t>(one.label) != label) continue;
      if (!list_.empty()) return fmt::format("{}, line {}", list_.string(), one.offset);
      if (content_.empty()) return one_line((origin_ / name(one)).string());
      return one_line(fmt::format("{}: {}", origin_.string(), name(one)));
    }
  return origin_.string();
}

FileStamp IndexFile::stamp() const { return header().stamp; }
Split IndexFile::split() const { return static_cast<Split>(header().split); }
bool IndexFile::labels_are_given() const { return header().given != 0; }
std::uint64_t IndexFile::ignored_files() const { return header().ignored; }
std::uint64_t IndexFile::passed_json() const { return header().passed_json; }
std::uint32_t IndexFile::checksum() const { return header().checksum; }

}  // namespace lockstep::pack
