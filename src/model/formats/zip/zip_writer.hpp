#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::model {

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
