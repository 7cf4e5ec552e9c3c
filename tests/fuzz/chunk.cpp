// Fuzzes a stored chunk of an external HDF5 file. The first bytes of the input say which filters it
// went through and how long it was before them.
#include <blosc.h>
#include <zstd.h>

#include <array>
#include <map>

#include "data/chunked/chunk_filters.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t most_filters = 3, head_bytes = 6;
constexpr std::array<H5Z_filter_t, 6> known_filters = {
    H5Z_FILTER_DEFLATE, H5Z_FILTER_SHUFFLE, H5Z_FILTER_FLETCHER32, 32000, 32001, 32015};

/// `ids`: the filters in the order in which they were applied; 6 and above mean no filter.
const data::ChunkFilters& filters_of(const std::array<std::uint8_t, most_filters>& ids,
                                     unsigned element) {
  static std::map<std::pair<std::array<std::uint8_t, most_filters>, unsigned>, data::ChunkFilters>
      known;
  const auto found = known.find({ids, element});
  if (found != known.end()) return found->second;
  const hid_t created = H5Pcreate(H5P_DATASET_CREATE);
  for (const std::uint8_t id : ids)
    if (id < known_filters.size()) {
      const bool shuffles = known_filters[id] == H5Z_FILTER_SHUFFLE;
      H5Pset_filter(created, known_filters[id], H5Z_FLAG_OPTIONAL, shuffles ? 1 : 0, &element);
    }
  const auto filters = data::ChunkFilters::of(created);
  H5Pclose(created);
  require_law(filters.has_value(), "the filters are known");
  return known.emplace(std::pair{ids, element}, *filters).first->second;
}

/// `coded` is the output of filters 0 to 2, with none skipped; `length` is the size of their input.
std::string seed(std::string filters, std::size_t length, const std::string& coded) {
  filters.resize(most_filters, char{9});
  return filters + std::string{2, 0, static_cast<char>(length - 1)} + coded;
}

/// A chunk as HDF5 stores it with its own filters.
std::string by_hdf5(const std::string& filters, const std::string& text) {
  const hsize_t length = text.size();
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS), created = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_fapl_core(access, 1 << 16, 0);
  H5Pset_chunk(created, 1, &length);
  for (const char id : filters) {
    if (id == 0) H5Pset_deflate(created, 6);
    if (id == 1) H5Pset_shuffle(created);
    if (id == 2) H5Pset_fletcher32(created);
  }
  const hid_t file = H5Fcreate("chunk", H5F_ACC_TRUNC, H5P_DEFAULT, access);
  const hid_t space = H5Screate_simple(1, &length, nullptr);
  const hid_t data =
      H5Dcreate2(file, "x", H5T_NATIVE_UINT8, space, H5P_DEFAULT, created, H5P_DEFAULT);
  H5Dwrite(data, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data());
  hsize_t bytes = 0, origin = 0;
  std::uint32_t skipped = 0;
  H5Dget_chunk_storage_size(data, &origin, &bytes);
  std::string stored(bytes, '\0');
  H5Dread_chunk(data, H5P_DEFAULT, &origin, &skipped, stored.data());
  for (const hid_t id : {access, created}) H5Pclose(id);
  H5Dclose(data);
  H5Sclose(space);
  H5Fclose(file);
  return seed(filters, text.size(), stored);
}

}  // namespace

std::vector<std::string> seeds() {
  std::string text;
  for (std::size_t i = 0; i < 96; ++i) text += static_cast<char>('a' + i % 7 * (i / 32));
  std::string packed(200, '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  std::vector<std::string> all = {seed({5}, text.size(), packed)};
  for (const char* how : {"blosclz", "lz4", "zstd", "zlib"}) {
    packed.resize(text.size() + BLOSC_MAX_OVERHEAD);
    const int bytes = blosc_compress_ctx(5, BLOSC_SHUFFLE, 4, text.size(), text.data(),
                                         packed.data(), packed.size(), how, 0, 1);
    if (bytes > 0) all.push_back(seed({4}, text.size(), packed.substr(0, std::size_t(bytes))));
  }
  const std::string lzf = std::string("\x01xy\x40\x01\xE0\x08\x00", 8);  // two, and copies of them
  all.push_back(seed({3}, 2 + 4 + 17, lzf));
  for (const std::string& filters :
       {std::string{0}, std::string{1, 0}, std::string{2}, std::string{1, 0, 2}, std::string{}})
    all.push_back(by_hdf5(filters, text));
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < head_bytes) return;
  Input input(bytes);
  std::array<std::uint8_t, most_filters> ids{};
  for (std::uint8_t& id : ids) id = std::min<std::uint8_t>(input.byte(), known_filters.size());
  const unsigned element = 1u << (input.byte() % 4);
  const std::uint32_t skipped = input.byte() % 8;
  const std::size_t length = 1 + std::size_t{input.byte()};
  // A separate copy, so that reading a byte too far is detected.
  const auto rest = input.rest();
  const std::vector<std::uint8_t> stored(rest.begin(), rest.end());
  std::vector<std::uint8_t> pixels(length);
  std::vector<std::uint8_t> scratch[2];
  filters_of(ids, element).undo(skipped, stored, pixels, scratch);
}

}  // namespace lockstep::fuzz
