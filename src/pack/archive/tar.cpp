#include "pack/archive/tar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::pack {
namespace {

constexpr std::uint64_t tar_block = 512;
constexpr std::size_t tar_buffer = 8 * tar_block;
constexpr std::uint64_t longest_name = 1 << 16, largest_pax = 1 << 20;

// POSIX.1-1988 (ustar): where each field of a header is.
struct Field {
  std::size_t at, bytes;
};
constexpr Field name_field{0, 100}, size_field{124, 12}, checksum_field{148, 8},
    magic_field{257, 8}, prefix_field{345, 155};
constexpr std::size_t type_at = 156;

/// Up to the first NUL, or the whole field.
std::string text(const char* block, Field field) {
  const char* from = block + field.at;
  return {from, std::find(from, from + field.bytes, '\0')};
}

/// Octal digits among spaces and NULs, or, if the first bit is set, GNU's big-endian binary.
std::optional<std::uint64_t> number(const char* block, Field field) {
  const auto* from = reinterpret_cast<const unsigned char*>(block + field.at);
  std::uint64_t value = 0;
  if ((from[0] & 0x80) != 0) {
    for (std::size_t i = 0; i < field.bytes; ++i) {
      const unsigned digit = i == 0 ? from[0] & 0x7Fu : from[i];
      if (value >> 55 != 0) return {};
      value = value << 8 | digit;
    }
    return value;
  }
  std::size_t i = 0;
  while (i < field.bytes && from[i] == ' ') ++i;
  const std::size_t first = i;
  for (; i < field.bytes && from[i] >= '0' && from[i] <= '7'; ++i) {
    if (value >> 60 != 0) return {};
    value = value << 3 | (from[i] - '0');
  }
  for (std::size_t rest = i; rest < field.bytes; ++rest)
    if (from[rest] != ' ' && from[rest] != '\0') return {};
  if (i == first) return {};
  return value;
}

/// Old programs summed the bytes as signed ones.
bool checksum_holds(const char* block) {
  std::int64_t sum = 0, signed_sum = 0;
  for (std::size_t i = 0; i < tar_block; ++i) {
    const bool itself = i >= checksum_field.at && i < checksum_field.at + checksum_field.bytes;
    const char byte = itself ? ' ' : block[i];
    sum += static_cast<unsigned char>(byte);
    signed_sum += static_cast<signed char>(byte);
  }
  const auto stored = number(block, checksum_field);
  return stored && (static_cast<std::int64_t>(*stored) == sum ||
                    static_cast<std::int64_t>(*stored) == signed_sum);
}

bool all_zero(const char* from, std::size_t bytes) {
  return std::all_of(from, from + bytes, [](char c) { return c == '\0'; });
}

std::uint64_t in_blocks(std::uint64_t bytes) {
  return (bytes + tar_block - 1) / tar_block * tar_block;
}

TarMember::Kind kind_of(char type, const std::string& name) {
  switch (type) {
    case '0':
    case '\0':
    case '7':
      return name.ends_with('/') ? TarMember::Kind::folder : TarMember::Kind::file;
    case '1':
    case '2':
      return TarMember::Kind::link;
    case '5':
      return TarMember::Kind::folder;
    case 'S':
      return TarMember::Kind::sparse;
    default:
      return TarMember::Kind::other;
  }
}

}  // namespace

TarReader::TarReader(int descriptor, std::uint64_t bytes, std::filesystem::path path)
    : descriptor_(descriptor), bytes_(bytes), path_(std::move(path)), buffer_(tar_buffer) {
  require(bytes_ > 0, fmt::format("{}: is empty", path_.string()));
}

void TarReader::refuse(std::uint64_t at, std::string_view what) const {
  throw InputError(fmt::format("{}: at byte {}: {}", path_.string(), at, one_line(what)));
}

std::string TarReader::read(std::uint64_t at, std::uint64_t bytes) const {
  std::string content(bytes, '\0');
  const std::size_t done = read_all_at(descriptor_, content.data(), bytes, at);
  if (done == bytes) return content;
  if (errno == 0) refuse(at + done, "the file has become shorter");
  refuse(at + done, fmt::format("cannot be read: {}", std::strerror(errno)));
}

const char* TarReader::block(std::uint64_t at) {
  if (at > bytes_ || bytes_ - at < tar_block)
    refuse(at, fmt::format("the archive is cut off: a header should come here, but the file is {} "
                           "bytes long",
                           bytes_));
  if (at < buffered_at_ || at + tar_block > buffered_at_ + buffered_) {
    const std::string piece = read(at, std::min<std::uint64_t>(tar_buffer, bytes_ - at));
    std::copy(piece.begin(), piece.end(), buffer_.begin());
    buffered_at_ = at;
    buffered_ = piece.size();
  }
  return buffer_.data() + (at - buffered_at_);
}

std::string TarReader::content(const TarMember& member, std::size_t most) const {
  if (member.bytes > most)
    refuse(member.header, fmt::format("{}: has {} bytes; at most {} were expected", member.name,
                                      member.bytes, most));
  return read(member.offset, member.bytes);
}

/// Blocks of zeros end an archive; anything else after them would be lost without a message.
bool TarReader::at_end() {
  if (!all_zero(block(at_), tar_block)) return false;
  for (std::uint64_t at = at_; at < bytes_;) {
    const std::string piece = read(at, std::min<std::uint64_t>(1 << 16, bytes_ - at));
    if (!all_zero(piece.data(), piece.size()))
      refuse(at_,
             "the archive ends here, but the file continues: if it is several tars in one, give "
             "them as several files");
    at += piece.size();
  }
  return true;
}

/// pax: "<length> <key>=<value>\n", one after the other.
void TarReader::read_pax(const TarMember& header, std::string& name, std::uint64_t& bytes,
                         bool& sparse) {
  const std::string records = content(header, largest_pax);
  const auto bad = [&] { refuse(header.header, "a pax header that is damaged"); };
  for (std::string_view rest = records; !rest.empty();) {
    std::size_t length = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), length);
    const auto digits = static_cast<std::size_t>(end - rest.data());
    if (error != std::errc() || length < digits + 3 || length > rest.size() ||
        rest[digits] != ' ' || rest[length - 1] != '\n')
      bad();
    const std::string_view record = rest.substr(digits + 1, length - digits - 2);
    rest.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == record.npos) bad();
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") {
      if (value.find('\0') != value.npos) bad();
      name = value;
    }
    if (key.starts_with("GNU.sparse.")) sparse = true;
    if (key != "size") continue;
    const auto size = whole_number<std::uint64_t>(value);
    if (!size) bad();
    bytes = *size;
  }
}

bool TarReader::next(TarMember& member) {
  constexpr std::uint64_t unknown = ~std::uint64_t{0};
  std::string long_name;
  std::uint64_t long_bytes = unknown;
  bool sparse = false, announced = false;
  for (;;) {
    if (!announced && at_ > 0 && at_ == bytes_)
      refuse(at_, "the archive is cut off: its end is not marked");
    if (at_end()) {
      if (announced) refuse(at_, "the archive ends after a header that announces a member");
      return false;
    }
    const char* header = block(at_);
    if (!checksum_holds(header))
      refuse(at_, at_ == 0 ? "this is not a tar: its first header is wrong"
                           : "damaged: the checksum of the header here is wrong");
    const auto bytes = number(header, size_field);
    if (!bytes) refuse(at_, "damaged: the header here has no size");
    const char type = header[type_at];
    member.name = text(header, name_field);
    if (std::memcmp(header + magic_field.at, "ustar\0", 6) == 0) {
      const std::string prefix = text(header, prefix_field);
      if (!prefix.empty()) member.name = prefix + '/' + member.name;
    }
    const bool meta = type == 'x' || type == 'g' || type == 'L' || type == 'K';
    if (!meta && !long_name.empty()) member.name = long_name;
    member.header = at_;
    member.offset = at_ + tar_block;
    member.bytes = !meta && long_bytes != unknown ? long_bytes : *bytes;
    member.kind = sparse ? TarMember::Kind::sparse : kind_of(type, member.name);
    // Links and folders have no content, whatever their size says, except in the oldest tars.
    if (type == '1' || type == '2' || type == '5') member.bytes = 0;
    if (member.bytes > bytes_ - member.offset)
      refuse(at_, fmt::format("{}: has {} bytes, but the file ends {} bytes after its header: the "
                              "archive is cut off or damaged",
                              member.name, member.bytes, bytes_ - member.offset));
    at_ = std::min(bytes_, member.offset + in_blocks(member.bytes));
    if (!meta) return true;
    if (type == 'x') read_pax(member, long_name, long_bytes, sparse);
    if (type == 'L') {
      long_name = content(member, longest_name);
      long_name.resize(std::min(long_name.size(), long_name.find('\0')));
    }
    announced = announced || type != 'g';
  }
}

}  // namespace lockstep::pack
