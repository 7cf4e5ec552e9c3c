#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// Numbers of PKWARE's APPNOTE.TXT: a zip is its members, each after a local header; a directory
// with an entry for each; and the directory's end. Numbers are little-endian.
namespace lockstep::model {

inline constexpr std::uint32_t local_mark = 0x04034b50, entry_mark = 0x02014b50,
                               end_mark = 0x06054b50, end64_mark = 0x06064b50,
                               locator64_mark = 0x07064b50;
inline constexpr std::size_t local_bytes = 30, entry_bytes = 46, end_bytes = 22, end64_bytes = 56,
                             locator64_bytes = 20;
inline constexpr std::uint16_t stored = 0, deflated = 8;
inline constexpr std::size_t longest_comment = 0xffff;
/// A number that does not fit, so that a longer field has it.
inline constexpr std::uint32_t too_large_32 = 0xffffffff;

/// A file in a zip.
struct ZipMember {
  std::string name;
  bool deflated = false;
  std::uint32_t crc32 = 0;
  std::size_t packed = 0, bytes = 0;  ///< in the zip, and unpacked
  std::size_t offset = 0;             ///< of its bytes in the zip
};

/// A zip in memory, which may come from anyone. Throws InputErrors that say what is wrong with
/// "it".
class ZipReader {
 public:
  /// Reads the directory, also in the form for 64 bits. No two members have one name or share
  /// bytes.
  explicit ZipReader(std::string_view zip);

  const std::vector<ZipMember>& members() const { return members_; }
  const ZipMember* find(std::string_view name) const;  ///< null: it has none
  std::string_view comment() const { return comment_; }

  /// The whole member, checked by its CRC-32: bytes of the zip, or in `buffer`.
  std::string_view read(const ZipMember& member, std::string& buffer) const;
  /// Its first bytes, at most `most`; not checked.
  std::string begin(const ZipMember& member, std::size_t most) const;

 private:
  std::string_view packed(const ZipMember& member) const {
    return zip_.substr(member.offset, member.packed);
  }
  std::string_view zip_, comment_;
  std::vector<ZipMember> members_;                           // by offset
  std::map<std::string, std::size_t, std::less<>> by_name_;  // indices of them
};

/// True when the file begins as a zip does.
bool looks_like_zip(std::string_view begin);

/// Makes a zip in memory, without packing. Each member's bytes begin at a multiple of 64, as
/// PyTorch and numpy place them, so that a file can be mapped. No times: the same members give the
/// same bytes.
class ZipWriter {
 public:
  void add(std::string_view name, std::string_view bytes) { add(name, bytes, {}); }
  /// One member of two pieces.
  void add(std::string_view name, std::string_view begin, std::string_view rest);
  /// The whole zip. A comment has at most longest_comment bytes. Throws InputError when the zip
  /// would need 64 bits.
  std::string finish(std::string_view comment = "") &&;

 private:
  std::string zip_, directory_;
  std::uint16_t members_ = 0;
};

}  // namespace lockstep::model
