#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::pack {

/// One entry of a tar.
struct TarMember {
  enum class Kind { file, folder, link, sparse, other };
  std::string name;
  Kind kind = Kind::other;
  std::uint64_t header = 0;             ///< where its header begins
  std::uint64_t offset = 0, bytes = 0;  ///< where its content lies
};

/// Walks over the members of a tar (ustar, pax, GNU with long names, and the older format) without
/// reading their content. A bad archive throws InputError naming the file and the byte: a header
/// with a wrong checksum, a member that extends past the end, an archive that is cut off or
/// followed by another.
class TarReader {
 public:
  /// `descriptor` is read with pread and must outlive the reader; `bytes`: how long the file is.
  TarReader(int descriptor, std::uint64_t bytes, std::filesystem::path path);
  bool next(TarMember& member);  ///< false after the last one
  /// A member's content. Throws InputError when it has more than `most` bytes.
  std::string content(const TarMember& member, std::size_t most) const;
  [[noreturn]] void refuse(std::uint64_t at, std::string_view what) const;

 private:
  const char* block(std::uint64_t at);
  std::string read(std::uint64_t at, std::uint64_t bytes) const;
  bool at_end();
  void read_pax(const TarMember& header, std::string& name, std::uint64_t& bytes, bool& sparse);

  int descriptor_;
  std::uint64_t bytes_, at_ = 0;
  std::filesystem::path path_;
  std::vector<char> buffer_;  ///< some blocks of the file
  std::uint64_t buffered_at_ = 0;
  std::size_t buffered_ = 0;
};

enum class Compression { none, gzip, zstd, xz, bzip2 };

/// Detects the compression by the first bytes. Throws InputError naming the file when it cannot be
/// read, or is compressed in an unknown way.
Compression compression_of(const std::filesystem::path& path);

/// How much is written: up to `times` the packed file's size, or `always` where that is more, while
/// the disk keeps `spare` bytes.
struct UnpackLimits {
  std::uint64_t times = 100, always = 1'000'000'000, spare = 256'000'000;
};

/// Unpacks the file to `to`, which appears when it is complete. Throws InputError naming the file,
/// and how far it got, when it is damaged or cut off, or above a limit.
void unpack(const std::filesystem::path& path, Compression how, const std::filesystem::path& to,
            const UnpackLimits& limits = {});

}  // namespace lockstep::pack
