#include "model/formats/zip.hpp"

#include <zlib.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "lockstep/base/error.hpp"
#include "lockstep/base/wire.hpp"
#include "model/formats/stored_tensor.hpp"

namespace lockstep::model {
namespace {

constexpr std::size_t most_members = 1 << 16;
constexpr std::uint16_t encrypted_flag = 1, zip64_field = 1;

/// A number at a place. Throws InputError where there are not that many bytes.
template <class Number>
Number number_in(std::string_view bytes, std::size_t at) {
  require(at <= bytes.size() && sizeof(Number) <= bytes.size() - at,
          "its zip directory is damaged");
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

std::uint16_t u16(std::string_view bytes, std::size_t at) {
  return number_in<std::uint16_t>(bytes, at);
}

std::uint32_t u32(std::string_view bytes, std::size_t at) {
  return number_in<std::uint32_t>(bytes, at);
}

std::uint64_t u64(std::string_view bytes, std::size_t at) {
  return number_in<std::uint64_t>(bytes, at);
}

std::string_view part(std::string_view bytes, std::uint64_t at, std::uint64_t count) {
  require(at <= bytes.size() && count <= bytes.size() - at, "its zip directory is damaged");
  return bytes.substr(at, count);
}

struct Directory {
  std::uint64_t entries = 0, bytes = 0, offset = 0;
  std::string_view comment;
};

/// Where the end of the directory begins: the last place where it may.
std::size_t find_end(std::string_view zip) {
  const std::size_t least =
      zip.size() > end_bytes + longest_comment ? zip.size() - end_bytes - longest_comment : 0;
  for (std::size_t at = zip.size() < end_bytes ? 0 : zip.size() - end_bytes + 1; at-- > least;)
    if (u32(zip, at) == end_mark && u16(zip, at + 20) == zip.size() - at - end_bytes) return at;
  throw InputError("it is a zip that is cut off: its directory is missing");
}

Directory find_directory(std::string_view zip) {
  const std::size_t end = find_end(zip);
  Directory found{.entries = u16(zip, end + 10),
                  .bytes = u32(zip, end + 12),
                  .offset = u32(zip, end + 16),
                  .comment = zip.substr(end + end_bytes)};
  std::size_t limit = end;
  if (end >= locator64_bytes && u32(zip, end - locator64_bytes) == locator64_mark) {
    const std::uint64_t at = u64(zip, end - locator64_bytes + 8);
    const std::string_view record = part(zip, at, end64_bytes);
    require(u32(record, 0) == end64_mark, "its zip directory is damaged");
    found.entries = u64(record, 32);
    found.bytes = u64(record, 40);
    found.offset = u64(record, 48);
    limit = at;
  }
  require(found.offset <= limit && found.bytes <= limit - found.offset,
          "its zip directory is damaged");
  require(found.entries <= most_members,
          fmt::format("its zip has {} members; at most {} are read", found.entries, most_members));
  return found;
}

/// Takes the numbers that did not fit from the field that has them.
void widen(std::string_view extra, std::uint64_t& bytes, std::uint64_t& packed,
           std::uint64_t& offset) {
  while (extra.size() >= 4) {
    const std::string_view field = part(extra, 4, u16(extra, 2));
    std::size_t at = 0;
    if (u16(extra, 0) == zip64_field)
      for (std::uint64_t* number : {&bytes, &packed, &offset})
        if (*number == too_large_32) *number = u64(field, at), at += 8;
    extra.remove_prefix(4 + field.size());
  }
}

/// One entry of the directory, which is taken from it.
ZipMember take_entry(std::string_view& directory, std::string_view zip, std::size_t limit) {
  require(u32(directory, 0) == entry_mark, "its zip directory is damaged");
  const std::size_t name = u16(directory, 28), extra = u16(directory, 30),
                    comment = u16(directory, 32);
  ZipMember member;
  member.name = part(directory, entry_bytes, name);
  const std::string shown = printable(member.name);
  const std::uint16_t method = u16(directory, 10);
  require((u16(directory, 8) & encrypted_flag) == 0, fmt::format("'{}' is encrypted", shown));
  require(method == stored || method == deflated,
          fmt::format("'{}' is packed by method {}; stored and deflated are read", shown, method));
  member.deflated = method == deflated;
  member.crc32 = u32(directory, 16);
  std::uint64_t packed = u32(directory, 20), bytes = u32(directory, 24),
                offset = u32(directory, 42);
  widen(part(directory, entry_bytes + name, extra), bytes, packed, offset);
  directory.remove_prefix(part(directory, 0, entry_bytes + name + extra + comment).size());

  const std::string_view local = part(zip, offset, local_bytes);
  require(u32(local, 0) == local_mark && u16(local, 26) == name &&
              part(zip, offset + local_bytes, name) == member.name,
          fmt::format("'{}' is not where the zip's directory says", shown));
  member.offset = offset + local_bytes + name + u16(local, 28);
  require(member.offset <= limit && packed <= limit - member.offset,
          fmt::format("'{}' reaches beyond the zip's members", shown));
  require(member.deflated || packed == bytes, fmt::format("'{}' has two sizes", shown));
  member.packed = packed;
  member.bytes = bytes;
  return member;
}

void require_separate(const std::vector<ZipMember>& members) {
  for (std::size_t i = 1; i < members.size(); ++i)
    // A local header is between the two.
    require(members[i - 1].offset + members[i - 1].packed + local_bytes <= members[i].offset,
            fmt::format("'{}' and '{}' share bytes of the zip", printable(members[i - 1].name),
                        printable(members[i].name)));
}

/// Unpacks at most `into.size()` bytes. Returns how many there were, and whether they are all.
std::pair<std::size_t, bool> inflate_into(std::string_view packed, std::string& into) {
  z_stream stream{};
  // Without zlib's header: the directory of the zip has the sizes and the sum.
  check(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "zlib could not start");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(into.data());
  stream.avail_out = static_cast<uInt>(into.size());
  const int result = inflate(&stream, Z_FINISH);
  const std::size_t count = into.size() - stream.avail_out;
  inflateEnd(&stream);
  return {count, result == Z_STREAM_END};
}

}  // namespace

bool looks_like_zip(std::string_view begin) { return begin.starts_with("PK\x03\x04"); }

ZipReader::ZipReader(std::string_view zip) : zip_(zip) {
  const Directory found = find_directory(zip);
  comment_ = found.comment;
  std::string_view directory = zip.substr(found.offset, found.bytes);
  for (std::uint64_t i = 0; i < found.entries; ++i)
    members_.push_back(take_entry(directory, zip, found.offset));
  std::stable_sort(members_.begin(), members_.end(),
                   [](const auto& a, const auto& b) { return a.offset < b.offset; });
  require_separate(members_);
  for (std::size_t i = 0; i < members_.size(); ++i)
    require(by_name_.emplace(members_[i].name, i).second,
            fmt::format("its zip has '{}' twice", printable(members_[i].name)));
}

const ZipMember* ZipReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &members_[found->second];
}

std::string_view ZipReader::read(const ZipMember& member, std::string& buffer) const {
  std::string_view bytes = packed(member);
  const std::string shown = printable(member.name);
  constexpr std::size_t most = std::numeric_limits<uInt>::max();
  require(member.bytes <= std::min(most, memory_for(zip_.size())) && member.packed <= most,
          fmt::format("'{}' unpacks to {} bytes, too many for a file of {}", shown, member.bytes,
                      zip_.size()));
  if (member.deflated) {
    buffer.resize(member.bytes + 1);  // so that one byte too many is seen
    const auto [count, whole] = inflate_into(bytes, buffer);
    require(whole && count == member.bytes,
            fmt::format("'{}' does not unpack to {} bytes", shown, member.bytes));
    bytes = std::string_view(buffer).substr(0, count);
  }
  require(::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()),
                  static_cast<uInt>(bytes.size())) == member.crc32,
          fmt::format("'{}' is damaged: its CRC-32 does not fit", shown));
  return bytes;
}

std::string ZipReader::begin(const ZipMember& member, std::size_t most) const {
  if (!member.deflated) return std::string(packed(member).substr(0, most));
  std::string begin(std::min(most, member.bytes), '\0');
  begin.resize(inflate_into(packed(member), begin).first);
  return begin;
}

namespace {

constexpr std::size_t entry_alignment = 64, field_head = 4;
constexpr std::uint16_t version = 20;            // of the format: 2.0
constexpr std::uint16_t first_day = 1 << 5 | 1;  // 1 January 1980
constexpr std::uint16_t padding_field = 0x4246;  // as PyTorch's: "FB", filled with 'Z'

template <class Number>
void put(std::string& bytes, Number number) {
  put_little_endian(bytes, number, sizeof number);
}

std::uint32_t sum_of(std::string_view bytes, std::uint32_t sum) {
  if (bytes.empty()) return sum;  // zlib would begin again at a null pointer
  check(bytes.size() <= std::numeric_limits<uInt>::max(), "a member of 4 GB");
  return static_cast<std::uint32_t>(
      ::crc32(sum, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

}  // namespace

void ZipWriter::add(std::string_view name, std::string_view begin, std::string_view rest) {
  const std::size_t bytes = begin.size() + rest.size(), offset = zip_.size();
  require(offset + bytes < too_large_32 && members_ < std::numeric_limits<std::uint16_t>::max(),
          "the model is too large for a zip without 64 bits");
  const std::size_t after = offset + local_bytes + name.size() + field_head;
  const std::size_t padding = (entry_alignment - after % entry_alignment) % entry_alignment;
  const std::uint32_t sum = sum_of(rest, sum_of(begin, 0));
  const auto describe = [&](std::string& to) {
    put(to, version);
    put(to, std::uint16_t{0});  // flags
    put(to, stored);
    put(to, std::uint16_t{0});  // time
    put(to, first_day);
    put(to, sum);
    put(to, static_cast<std::uint32_t>(bytes));  // in the zip
    put(to, static_cast<std::uint32_t>(bytes));  // unpacked
    put(to, static_cast<std::uint16_t>(name.size()));
  };
  put(zip_, local_mark);
  describe(zip_);
  put(zip_, static_cast<std::uint16_t>(field_head + padding));
  zip_ += name;
  put(zip_, padding_field);
  put(zip_, static_cast<std::uint16_t>(padding));
  zip_.append(padding, 'Z');
  zip_ += begin;
  zip_ += rest;

  put(directory_, entry_mark);
  put(directory_, version);  // made by
  describe(directory_);
  put(directory_, std::uint64_t{0});  // extra field, comment, disk, internal attributes
  put(directory_, std::uint32_t{0});  // external attributes
  put(directory_, static_cast<std::uint32_t>(offset));
  directory_ += name;
  ++members_;
}

std::string ZipWriter::finish(std::string_view comment) && {
  check(comment.size() <= longest_comment, "a comment fits into a zip");
  const std::size_t offset = zip_.size();
  require(offset + directory_.size() < too_large_32,
          "the model is too large for a zip without 64 bits");
  zip_ += directory_;
  put(zip_, end_mark);
  put(zip_, std::uint32_t{0});  // two numbers of disks
  put(zip_, members_);
  put(zip_, members_);
  put(zip_, static_cast<std::uint32_t>(directory_.size()));
  put(zip_, static_cast<std::uint32_t>(offset));
  put(zip_, static_cast<std::uint16_t>(comment.size()));
  zip_ += comment;
  return std::move(zip_);
}

}  // namespace lockstep::model
