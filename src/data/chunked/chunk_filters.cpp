#include "data/chunked/chunk_filters.hpp"

#include <blosc.h>
#include <libdeflate.h>
#include <zstd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::data {
namespace {

// Registered with The HDF Group ("Registered Filter Plugins").
constexpr H5Z_filter_t lzf_filter = 32000, blosc_filter = 32001, zstd_filter = 32015;

using Bytes = std::span<const std::uint8_t>;
using Room = std::span<std::uint8_t>;
using Inflater = Owned<libdeflate_decompressor*, libdeflate_free_decompressor, nullptr>;
using ZstdContext = Owned<ZSTD_DCtx*, ZSTD_freeDCtx, nullptr>;

[[noreturn]] void broken(const char* filter) {
  throw InputError(fmt::format("its {} data is damaged", filter));
}

// Each returns the number of bytes that it wrote.
std::size_t gzip(Bytes from, Room to) {
  thread_local const Inflater inflater(libdeflate_alloc_decompressor());
  std::size_t bytes = 0;
  if (libdeflate_zlib_decompress(inflater.get(), from.data(), from.size(), to.data(), to.size(),
                                 &bytes) != LIBDEFLATE_SUCCESS)
    broken("gzip");
  return bytes;
}

std::size_t zstd(Bytes from, Room to) {
  thread_local const ZstdContext context(ZSTD_createDCtx());
  const std::size_t bytes =
      ZSTD_decompressDCtx(context.get(), to.data(), to.size(), from.data(), from.size());
  if (ZSTD_isError(bytes) != 0) broken("Zstandard");
  return bytes;
}

std::size_t blosc(Bytes from, Room to) {
  std::size_t bytes = 0;
  if (blosc_cbuffer_validate(from.data(), from.size(), &bytes) != 0 || bytes > to.size())
    broken("Blosc");
  const int got = blosc_decompress_ctx(from.data(), to.data(), to.size(), 1);
  if (got < 0) broken("Blosc");
  return static_cast<std::size_t>(got);
}

// LZF: a control byte c below 32 comes before c + 1 literal bytes. Otherwise a copy follows: its
// length less 2 is in the upper three bits (plus the next byte, if all three are set), its distance
// less 1 in the lower five bits and the next byte.
std::size_t lzf(Bytes from, Room to) {
  std::size_t at = 0, out = 0;
  const auto next = [&]() -> std::size_t {
    if (at >= from.size()) broken("LZF");
    return from[at++];
  };
  while (at < from.size()) {
    const std::size_t control = from[at++];
    if (control < 32) {
      const std::size_t length = control + 1;
      if (length > from.size() - at || length > to.size() - out) broken("LZF");
      std::memcpy(&to[out], &from[at], length);
      at += length;
      out += length;
      continue;
    }
    std::size_t length = control >> 5;
    if (length == 7) length += next();
    length += 2;
    const std::size_t distance = ((control & 31) << 8 | next()) + 1;
    if (distance > out || length > to.size() - out) broken("LZF");
    std::uint8_t* const target = to.data() + out;
    const std::uint8_t* const source = target - distance;
    out += length;
    if (distance >= length) {
      std::memcpy(target, source, length);
    } else {  // the copy overlaps its own output
      for (std::size_t i = 0; i < length; ++i) target[i] = source[i];
    }
  }
  return out;
}

// Byte b of all elements is stored together; a partial element is unchanged at the end.
std::size_t unshuffle(std::size_t element, Bytes from, Room to) {
  if (from.size() > to.size()) broken("shuffled");
  const std::size_t count = from.size() / element;
  const auto merge = [&](auto width) {
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t b = 0; b < width; ++b) to[i * width + b] = from[b * count + i];
  };
  if (element == 2) {
    merge(std::integral_constant<std::size_t, 2>{});
  } else if (element == 4) {
    merge(std::integral_constant<std::size_t, 4>{});
  } else {
    merge(element);
  }
  std::copy(from.begin() + static_cast<std::ptrdiff_t>(count * element), from.end(),
            to.begin() + static_cast<std::ptrdiff_t>(count * element));
  return from.size();
}

// Fletcher's checksum of 16-bit words, the upper byte first (an odd last byte is an upper one),
// modulo 65535.
std::uint32_t fletcher32(Bytes bytes) {
  std::uint64_t sum = 0, sum_of_sums = 0;
  std::size_t at = 0;
  const auto add = [&](std::uint64_t word) {
    sum += word;
    sum_of_sums += sum;
  };
  while (at < bytes.size()) {
    for (std::size_t i = 0; i < 1 << 14 && at < bytes.size(); ++i, at += 2)
      add(static_cast<std::uint64_t>(bytes[at]) << 8 |
          (at + 1 < bytes.size() ? bytes[at + 1] : 0u));
    sum %= 65535;
    sum_of_sums %= 65535;
  }
  return static_cast<std::uint32_t>(sum_of_sums << 16 | sum);
}

// Compares two sums modulo 65535: 0 and 65535 are the same.
bool same_fletcher32(std::uint32_t a, std::uint32_t b) {
  return a % 65536 % 65535 == b % 65536 % 65535 && (a >> 16) % 65535 == (b >> 16) % 65535;
}

std::size_t without_checksum(Bytes from, Room to) {
  constexpr std::size_t sum_bytes = 4;
  if (from.size() < sum_bytes || from.size() - sum_bytes > to.size()) broken("checksummed");
  const Bytes data = from.first(from.size() - sum_bytes);
  std::uint32_t stored = 0;
  for (std::size_t i = 0; i < sum_bytes; ++i)
    stored |= static_cast<std::uint32_t>(from[data.size() + i]) << (8 * i);
  if (!same_fletcher32(fletcher32(data), stored))
    throw InputError("its data is damaged: the Fletcher-32 checksum differs");
  std::copy(data.begin(), data.end(), to.begin());
  return data.size();
}

const char* name_of(H5Z_filter_t id) {
  switch (id) {
    case H5Z_FILTER_DEFLATE:
      return "gzip";
    case H5Z_FILTER_SHUFFLE:
      return "shuffle";
    case H5Z_FILTER_FLETCHER32:
      return "Fletcher-32";
    case lzf_filter:
      return "LZF";
    case blosc_filter:
      return "Blosc";
    case zstd_filter:
      return "Zstandard";
    default:
      return nullptr;
  }
}

struct Listed {
  H5Z_filter_t id = 0;
  std::vector<unsigned> values;
  std::string name;  // as in the file
};

std::vector<Listed> list(hid_t created) {
  std::vector<Listed> all;
  const int count = std::max(0, H5Pget_nfilters(created));
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0, values[32] = {};
    std::size_t length = std::size(values);
    char name[128] = "";
    const H5Z_filter_t id = H5Pget_filter2(created, static_cast<unsigned>(i), &flags, &length,
                                           values, sizeof name, name, &config);
    const std::size_t known = std::min(length, std::size(values));
    all.push_back({id, {values, values + known}, name});
  }
  return all;
}

}  // namespace

std::optional<ChunkFilters> ChunkFilters::of(hid_t created) {
  ChunkFilters result;
  for (const Listed& one : list(created)) {
    if (name_of(one.id) == nullptr) return std::nullopt;
    Filter filter{one.id, 1};
    if (one.id == H5Z_FILTER_SHUFFLE && !one.values.empty())
      filter.element = std::max(1u, one.values[0]);
    result.filters_.push_back(filter);
  }
  return result;
}

void ChunkFilters::undo(std::uint32_t skipped, Bytes stored, Room to,
                        std::vector<std::uint8_t> (&scratch)[2]) const {
  std::vector<std::size_t> used;
  for (std::size_t i = filters_.size(); i-- > 0;)
    if ((skipped >> i & 1) == 0) used.push_back(i);
  Bytes from = stored;
  // A checksum is the only thing that makes data longer.
  const std::size_t room = to.size() + 4 * filters_.size();
  for (std::size_t step = 0; step < used.size(); ++step) {
    const Filter& filter = filters_[used[step]];
    Room target = to;
    if (step + 1 < used.size()) {
      std::vector<std::uint8_t>& kept = scratch[step % 2];
      if (kept.size() < room) kept.resize(room);
      target = Room(kept).first(room);
    }
    std::size_t bytes = 0;
    switch (filter.id) {
      case H5Z_FILTER_DEFLATE:
        bytes = gzip(from, target);
        break;
      case H5Z_FILTER_SHUFFLE:
        bytes = unshuffle(filter.element, from, target);
        break;
      case H5Z_FILTER_FLETCHER32:
        bytes = without_checksum(from, target);
        break;
      case lzf_filter:
        bytes = lzf(from, target);
        break;
      case blosc_filter:
        bytes = blosc(from, target);
        break;
      default:
        bytes = zstd(from, target);
    }
    from = target.first(bytes);
  }
  if (from.size() != to.size())
    throw InputError(fmt::format("it is {} bytes long instead of {}", from.size(), to.size()));
  if (used.empty()) std::copy(from.begin(), from.end(), to.begin());
}

std::string ChunkFilters::names() const {
  std::vector<std::string> all;
  for (const Filter& filter : filters_) all.emplace_back(name_of(filter.id));
  return join(all, ", ");
}

std::string filter_names(hid_t created) {
  std::vector<std::string> all;
  for (const Listed& one : list(created)) {
    const char* known = name_of(one.id);
    all.push_back(known != nullptr   ? known
                  : one.name.empty() ? fmt::format("filter {}", one.id)
                                     : one.name);
  }
  return join(all, ", ");
}

namespace {

std::string plugin_folders() {
  unsigned count = 0;
  std::vector<std::string> folders;
  if (H5PLsize(&count) < 0) return "no folder";
  for (unsigned i = 0; i < count; ++i) {
    std::array<char, 1024> folder{};
    if (H5PLget(i, folder.data(), folder.size()) > 0) folders.emplace_back(folder.data());
  }
  return folders.empty() ? "no folder" : join(folders, ", ");
}

}  // namespace

std::string missing_filter(hid_t data) {
  const h5::Properties created(H5Dget_create_plist(data));
  const int filters = H5Pget_nfilters(created.get());
  for (int i = 0; i < filters; ++i) {
    std::array<char, 256> name{};
    std::size_t values = 0;
    const H5Z_filter_t id = H5Pget_filter2(created.get(), static_cast<unsigned>(i), nullptr,
                                           &values, nullptr, name.size() - 1, name.data(), nullptr);
    if (id < 0 || H5Zfilter_avail(id) > 0) continue;
    return fmt::format(
        "filter {}{} is needed and not installed: HDF5 looks for its plugin in {} "
        "(HDF5_PLUGIN_PATH)",
        id, name[0] != '\0' ? fmt::format(" ({})", name.data()) : "", plugin_folders());
  }
  return {};
}

}  // namespace lockstep::data
