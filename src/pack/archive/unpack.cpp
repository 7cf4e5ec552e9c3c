#include "pack/archive/tar.hpp"

#include <bzlib.h>
#include <fmt/format.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

constexpr std::size_t unpacked_piece = 1 << 18;

/// The compressed file, piece by piece.
class Input {
 public:
  explicit Input(const fs::path& path) : path_(path), bytes_(unpacked_piece) {
    file_ = open_regular(path);
    if (!file_) fail();
  }
  /// Empty at the end.
  std::string_view next() {
    const std::size_t got = read_all(file_.get(), bytes_.data(), bytes_.size());
    if (got < bytes_.size() && errno != 0) fail();
    read_ += got;
    return {bytes_.data(), got};
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw InputError(fmt::format("{}: cannot be unpacked: {} (in the first {} bytes of the file)",
                                 path_.string(), what, read_));
  }

 private:
  [[noreturn]] void fail() const {
    throw InputError(fmt::format("{}: {}", path_.string(), std::strerror(errno)));
  }
  const fs::path& path_;
  Descriptor file_;
  std::vector<char> bytes_;
  std::uint64_t read_ = 0;
};

class Output {
 public:
  Output(const fs::path& path, const fs::path& from, const UnpackLimits& limits)
      : path_(path),
        from_(from),
        limits_(limits),
        most_(std::max(limits.always, fs::file_size(from) * limits.times)),
        file_(path, 0),
        bytes_(unpacked_piece) {}
  char* room() { return bytes_.data(); }
  void write(std::size_t count) {
    require_room(count);
    file_.add({bytes_.data(), count});
  }
  void commit() { file_.commit(); }

 private:
  /// A few bytes may stand for a disk full of zeros.
  void require_room(std::size_t count) {
    written_ += count;
    require(written_ <= most_,
            fmt::format("{}: unpacks to more than {}, {} times its size, as no tar of images does; "
                        "if this is one, unpack it and pack the .tar",
                        from_.string(), human_bytes(static_cast<double>(most_)), limits_.times));
    if (written_ < next_look_) return;
    next_look_ = written_ + look_each;
    const fs::space_info space = fs::space(path_.parent_path());
    require(space.available >= limits_.spare,
            fmt::format("{}: unpacked, it does not fit next to {}: after {} the disk has {} left; "
                        "choose an --out with more room, or unpack it elsewhere and pack the .tar",
                        from_.string(), path_.parent_path().string(),
                        human_bytes(static_cast<double>(written_)),
                        human_bytes(static_cast<double>(space.available))));
  }

  static constexpr std::uint64_t look_each = 64 << 20;  ///< bytes between looks at the free space
  const fs::path &path_, &from_;
  const UnpackLimits limits_;
  const std::uint64_t most_;
  std::uint64_t written_ = 0, next_look_ = 0;
  PendingPieces file_;
  std::vector<char> bytes_;
};

/// A file may hold several streams, one after the other; each has its checksum.
void unpack_gzip(Input& input, Output& output) {
  z_stream stream{};
  constexpr int gzip_only = 16;
  check(inflateInit2(&stream, MAX_WBITS + gzip_only) == Z_OK, "zlib could not start");
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } const end{&stream};
  bool inside = true;
  for (std::string_view piece = input.next(); !piece.empty(); piece = input.next()) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(piece.data()));
    stream.avail_in = static_cast<uInt>(piece.size());
    int result = Z_OK;
    do {
      // After the last stream there may be zeros, as padding.
      if (!inside && *stream.next_in == 0) {
        ++stream.next_in;
        --stream.avail_in;
        continue;
      }
      if (!inside) inflateReset(&stream);
      stream.next_out = reinterpret_cast<Bytef*>(output.room());
      stream.avail_out = unpacked_piece;
      result = inflate(&stream, Z_NO_FLUSH);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        input.refuse(stream.msg != nullptr ? stream.msg : "damaged");
      inside = result != Z_STREAM_END;
      output.write(unpacked_piece - stream.avail_out);
    } while (stream.avail_in > 0 || (inside && stream.avail_out == 0));
  }
  if (inside) input.refuse("it is cut off");
}

void unpack_zstd(Input& input, Output& output) {
  const Owned<ZSTD_DCtx*, ZSTD_freeDCtx> context(ZSTD_createDCtx());
  check(static_cast<bool>(context), "zstd could not start");
  std::size_t wanted = 1;  // 0 after a whole frame
  for (std::string_view piece = input.next(); !piece.empty(); piece = input.next()) {
    ZSTD_inBuffer in{piece.data(), piece.size(), 0};
    for (bool full = false; in.pos < in.size || full;) {
      ZSTD_outBuffer out{output.room(), unpacked_piece, 0};
      wanted = ZSTD_decompressStream(context.get(), &out, &in);
      if (ZSTD_isError(wanted) != 0) input.refuse(ZSTD_getErrorName(wanted));
      output.write(out.pos);
      full = out.pos == out.size && wanted > 0;
    }
  }
  if (wanted > 0) input.refuse("it is cut off");
}

/// Several streams may follow each other, with zeros between them.
void unpack_xz(Input& input, Output& output) {
  constexpr std::uint64_t most_memory = std::uint64_t{1} << 27;  // xz -9 needs half of it
  lzma_stream stream = LZMA_STREAM_INIT;
  check(lzma_stream_decoder(&stream, most_memory, LZMA_CONCATENATED) == LZMA_OK,
        "liblzma could not start");
  struct End {
    lzma_stream* stream;
    ~End() { lzma_end(stream); }
  } const end{&stream};
  lzma_ret result = LZMA_OK;
  for (bool at_end = false; result != LZMA_STREAM_END;) {
    if (stream.avail_in == 0 && !at_end) {
      const std::string_view piece = input.next();
      stream.next_in = reinterpret_cast<const std::uint8_t*>(piece.data());
      stream.avail_in = piece.size();
      at_end = piece.empty();
    }
    stream.next_out = reinterpret_cast<std::uint8_t*>(output.room());
    stream.avail_out = unpacked_piece;
    result = lzma_code(&stream, at_end ? LZMA_FINISH : LZMA_RUN);
    if (result == LZMA_MEMLIMIT_ERROR) input.refuse("it needs more than 128 MB of memory");
    if (result == LZMA_BUF_ERROR) input.refuse("it is cut off");
    if (result != LZMA_OK && result != LZMA_STREAM_END) input.refuse("damaged");
    output.write(unpacked_piece - stream.avail_out);
  }
}

/// Several streams may follow each other.
void unpack_bzip2(Input& input, Output& output) {
  bz_stream stream{};
  struct End {
    bz_stream* stream;
    ~End() { BZ2_bzDecompressEnd(stream); }
  } const end{&stream};
  bool inside = false;
  for (std::string_view piece = input.next(); !piece.empty(); piece = input.next()) {
    stream.next_in = const_cast<char*>(piece.data());
    stream.avail_in = static_cast<unsigned>(piece.size());
    for (bool full = false; stream.avail_in > 0 || full;) {
      if (!inside) {
        bz_stream next{};
        next.next_in = stream.next_in;
        next.avail_in = stream.avail_in;
        BZ2_bzDecompressEnd(&stream);
        stream = next;
        check(BZ2_bzDecompressInit(&stream, 0, 0) == BZ_OK, "libbz2 could not start");
      }
      stream.next_out = output.room();
      stream.avail_out = unpacked_piece;
      const int result = BZ2_bzDecompress(&stream);
      if (result != BZ_OK && result != BZ_STREAM_END) input.refuse("damaged");
      inside = result != BZ_STREAM_END;
      output.write(unpacked_piece - stream.avail_out);
      full = inside && stream.avail_out == 0;
    }
  }
  if (inside) input.refuse("it is cut off");
}

}  // namespace

Compression compression_of(const fs::path& path) {
  using namespace std::string_view_literals;
  Input input(path);
  const std::string_view first = input.next();
  if (first.starts_with("\x1F\x8B"sv)) return Compression::gzip;
  if (first.starts_with("\x28\xB5\x2F\xFD"sv)) return Compression::zstd;
  if (first.starts_with("\xFD\x37zXZ\0"sv)) return Compression::xz;
  if (first.starts_with("BZh"sv)) return Compression::bzip2;
  return Compression::none;
}

void unpack(const fs::path& path, Compression how, const fs::path& to, const UnpackLimits& limits) {
  Input input(path);
  Output output(to, path, limits);
  if (how == Compression::gzip) unpack_gzip(input, output);
  if (how == Compression::zstd) unpack_zstd(input, output);
  if (how == Compression::xz) unpack_xz(input, output);
  if (how == Compression::bzip2) unpack_bzip2(input, output);
  output.commit();
}

}  // namespace lockstep::pack
