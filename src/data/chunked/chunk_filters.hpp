#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

/// Undoes the filters of a data set's chunks without HDF5, so that any number of threads can do it
/// at once: gzip, shuffle, Fletcher-32, LZF, Zstandard and Blosc.
class ChunkFilters {
 public:
  /// The filters in a data set's creation properties. Empty when only HDF5 may know one of them.
  /// The caller holds an h5::Session.
  static std::optional<ChunkFilters> of(hid_t created);

  /// Decodes a chunk as it is stored to exactly to.size() bytes. Bit i of `skipped` says that
  /// filter i was not used on it. `scratch` keeps its memory for the next call. Throws InputError
  /// saying what is wrong, but not where.
  void undo(std::uint32_t skipped, std::span<const std::uint8_t> stored, std::span<std::uint8_t> to,
            std::vector<std::uint8_t> (&scratch)[2]) const;

  bool empty() const { return filters_.empty(); }
  std::string names() const;  ///< "shuffle, gzip"; "" without filters

 private:
  struct Filter {
    H5Z_filter_t id = 0;
    std::size_t element = 1;  ///< shuffle: bytes of one element
  };
  std::vector<Filter> filters_;  ///< in the order of writing
};

/// Names of all filters in a data set's creation properties, known here or not, as "shuffle, gzip".
/// The caller holds an h5::Session.
std::string filter_names(hid_t created);

/// Why the values of a data set cannot be read, if one of its filters is not installed: its number
/// and name, and where HDF5 looks for its plugin. Empty if all are there. The caller holds an
/// h5::Session.
std::string missing_filter(hid_t data);

}  // namespace lockstep::data
