#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::model {

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

}  // namespace lockstep::model
