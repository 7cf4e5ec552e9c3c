#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "data/chunked/chunk_filters.hpp"
#include "data/chunked/pixel_form.hpp"
#include "data/chunked/whole_data.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"

namespace lockstep::data {

/// HDF5's type for it in memory. The caller holds an h5::Session.
hid_t memory_type(Number number);

/// The kind of number of HDF5's type, of any byte order; none: it has no name here. The caller
/// holds an h5::Session.
std::optional<Number> number_of(hid_t type);

/// The images of an open file that do not lie in it as plain bytes in one piece: chunked,
/// compressed, virtual, or of another byte order. They are decoded block by block: all chunks over
/// the same rows, or some rows. Where the filters are known here, a chunk is fetched as stored,
/// under HDF5's lock, and decoded outside the lock. Keeps the file open. The caller must not hold
/// an h5::Session when it is destroyed.
///
/// **Thread safety:** decode() and decode_stored() may run on many threads at once.
class StoredImages {
 public:
  /// `data` has `rows` rows of `form`, and `sources` are what require_whole() gave for it. The
  /// caller holds an h5::Session. Throws InputError naming `path` when a block would be too large.
  StoredImages(std::filesystem::path path, h5::Data data, Sources sources, const PixelForm& form,
               std::size_t rows);
  ~StoredImages();
  StoredImages(const StoredImages&) = delete;
  StoredImages& operator=(const StoredImages&) = delete;

  std::size_t block_rows() const { return block_rows_; }
  std::size_t rows_of(std::size_t block) const;  ///< the last one may have fewer
  /// Rows of a block as elements [rows_of(block), height, width, channels], in which
  /// PixelForm::find_bad() was not asked for, and rows of which a number cannot be converted are
  /// what bad_number() says. Throws InputError naming the file and the rows.
  void decode(std::size_t block, std::uint8_t* pixels) const;
  /// The same, as stored, in this machine's byte order.
  void decode_stored(std::size_t block, std::uint8_t* numbers) const;
  /// Why a row that decode() has made holds no elements; else nothing.
  std::optional<BadNumber> bad_number(std::size_t row) const;
  const PixelForm& form() const { return form_; }
  const std::filesystem::path& path() const { return path_; }
  /// Sets what the numbers become, which is found only after the images are open.
  void set_form(const PixelForm& form) { form_ = form; }
  /// "chunks of 16 rows, gzip", for `lockstep info`.
  const std::string& layout() const { return layout_; }
  bool through_hdf5() const { return !filters_; }  ///< then one thread at a time decodes

 private:
  void choose_way(hid_t created);
  void reopen_without_cache();
  /// Chunks without filters: HDF5 reads them directly into place.
  bool plain_chunks() const { return filters_ && filters_->empty(); }
  void remember_files();
  void require_unchanged(std::size_t block) const;
  void decode_chunks(std::size_t block, std::uint8_t* numbers) const;
  void fetch(const std::vector<hsize_t>& origin, std::vector<std::uint8_t>& stored,
             std::uint32_t& skipped) const;
  void place(const std::vector<hsize_t>& origin, const std::uint8_t* chunk, std::size_t block,
             std::uint8_t* numbers) const;
  void read_by_hdf5(std::size_t block, std::uint8_t* numbers) const;
  std::size_t chunk_bytes() const;
  std::string rows_text(std::size_t block) const;

  std::filesystem::path path_;
  h5::Data data_;
  h5::File file_;
  PixelForm form_;
  std::size_t rows_, block_rows_ = 1;
  std::vector<hsize_t> extent_, chunk_;  // of each dimension; no chunk: not chunked
  std::optional<ChunkFilters> filters_;  // none: HDF5 decodes
  bool turned_ = false;                  // the numbers have the other byte order in the file
  Sources sources_;
  std::vector<FileStamp> stamps_;  // of the sources' files, at the time of opening
  int descriptor_ = -1;            // HDF5's, of the file itself; below 0: none
  FileStamp stamp_;
  std::string layout_;
  mutable std::mutex bad_mutex_;
  mutable std::map<std::size_t, BadNumber> bad_;  // by row
};

}  // namespace lockstep::data
