#pragma once

#include <hdf5.h>

#include <array>
#include <cstring>
#include <map>

#include "data/shard/rows.hpp"
#include "data/shard/shard_file.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/data/image/image.hpp"
#include "tests/fuzz/target.hpp"

// Makes the files that the shard target reads. HDF5 writes them; an input's first bytes choose the
// shapes, types and filters, the next ones the values.
namespace lockstep::fuzz {

/// What the file looks like, one byte for each choice.
struct Hdf5Form {
  enum Kind : std::uint8_t { raw, jpeg, external };
  static constexpr std::size_t bytes = 10;
  std::array<std::uint8_t, bytes> of{};

  Kind kind() const { return static_cast<Kind>(of[0] % 3); }
  hsize_t rows() const { return 1 + of[1] % 6; }
  hsize_t height() const { return 1 + of[2] % 12; }
  hsize_t width() const { return 1 + of[3] % 12; }
  hsize_t channels() const { return 1 + of[4] % 5; }
  hid_t number() const {
    // Chunks that need conversion are decoded by HDF5 itself, which trusts their lengths.
    const hid_t others[] = {H5T_STD_I8LE,   H5T_STD_U16LE, H5T_STD_U32LE,  H5T_STD_I32LE,
                            H5T_STD_U64LE,  H5T_STD_I64LE, H5T_IEEE_F32LE, H5T_IEEE_F64LE,
                            H5T_IEEE_F32BE, H5T_STD_I16BE, H5T_STD_U16BE,  H5T_IEEE_F64BE};
    return of[5] < 128 ? H5T_STD_U8LE : others[of[5] % (chunked() ? 8 : 12)];
  }
  bool chunked() const { return of[6] % 8 > 3; }
  bool compact() const { return of[6] % 8 == 3; }
  unsigned filters() const { return of[6] / 8; }
  unsigned spoilt() const { return of[7] % 16; }  ///< which item, counted from 1; others: no item
  unsigned how_spoilt() const { return of[7] / 16 % 5; }
  hsize_t chunk_rows() const { return 1 + of[8] % rows(); }
  bool rows_cut() const { return of[8] > 127; }
  bool channels_first() const { return (of[9] & 1) != 0; }
  bool flat() const { return (of[9] & 2) != 0; }   ///< grey images without a dimension for it
  bool named() const { return (of[9] & 4) != 0; }  ///< classes, in an external file
  bool labels_wide() const { return (of[9] & 8) != 0; }
};

/// Where values of one item are in the file; items are numbered as below.
struct Hdf5Place {
  unsigned item = 0;
  std::uint64_t offset = 0, bytes = 0;
};
inline constexpr unsigned format_item = 1, version_item = 2, means_item = 3, deviations_item = 4,
                          class_names_item = 5, labels_item = 6, crcs_item = 7, offsets_item = 8,
                          sizes_item = 9, images_item = 10;

class Hdf5Maker {
 public:
  explicit Hdf5Maker(const Hdf5Form& form) : form_(form) {
    const h5::Properties access = h5::file_access();
    H5Pset_fapl_core(access.get(), 1 << 14, 0);
    file_ = h5::File(H5Fcreate("fuzz", H5F_ACC_TRUNC, H5P_DEFAULT, access.get()));
    require_law(static_cast<bool>(file_), "HDF5 makes a file");
    const bool shard = form_.kind() != Hdf5Form::external;
    if (shard) write_attributes();
    if (shard || form_.named()) write_classes();
    write_numbers();
    H5Fflush(file_.get(), H5F_SCOPE_GLOBAL);
    image_.resize(
        static_cast<std::size_t>(std::max<ssize_t>(0, H5Fget_file_image(file_.get(), nullptr, 0))));
    H5Fget_file_image(file_.get(), image_.data(), image_.size());
    find_attributes();
  }
  std::vector<std::uint8_t>& image() { return image_; }
  const std::vector<Hdf5Place>& places() const { return places_; }

 private:
  /// True if this item, counted from 1, must be made wrong in this way.
  bool spoilt(unsigned item, unsigned how) const {
    return form_.spoilt() == item && form_.how_spoilt() == how;
  }
  enum How : unsigned { missing, other_type, other_rank, longer, as_bytes };

  void attribute(unsigned item, const char* name, hid_t type, hsize_t count, const void* values) {
    if (spoilt(item, missing)) return;
    count += spoilt(item, longer) ? 1 : 0;
    const hsize_t shape[] = {count, 1};
    const bool scalar = (item <= version_item) != spoilt(item, other_rank);
    const h5::Space space(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, shape, nullptr));
    const hid_t stored = spoilt(item, other_type) ? H5T_STD_I16BE : type;
    const h5::Attribute made(
        H5Acreate2(file_.get(), name, stored, space.get(), H5P_DEFAULT, H5P_DEFAULT));
    if (made && stored == type) H5Awrite(made.get(), type, values);
  }

  static constexpr float known_mean = 0.515625f,
                         known_deviation = 0.265625f;  // found again in the file

  void write_attributes() {
    const bool raw = form_.kind() == Hdf5Form::raw;
    const std::string format = raw ? data::shard_format : data::jpeg_shard_format;
    const int version = raw ? data::shard_version : data::jpeg_shard_version;
    const h5::Type text(H5Tcopy(H5T_C_S1));
    H5Tset_size(text.get(), format.size());
    attribute(format_item, "format", text.get(), 1, format.data());
    attribute(version_item, "format_version", H5T_NATIVE_INT, 1, &version);
    const std::vector<float> mean(9, known_mean), deviation(9, known_deviation);
    attribute(means_item, "mean", H5T_NATIVE_FLOAT, channels(), mean.data());
    attribute(deviations_item, "stddev", H5T_NATIVE_FLOAT, channels(), deviation.data());
  }
  hsize_t channels() const {
    return form_.kind() == Hdf5Form::jpeg ? (form_.channels() > 2 ? 3 : 1) : form_.channels();
  }

  /// HDF5 does not say where attributes are, so this searches for their known values.
  void find_attributes() {
    for (const auto& [item, value] :
         {std::pair{means_item, known_mean}, std::pair{deviations_item, known_deviation}})
      for (std::size_t at = 0; at + sizeof value <= image_.size(); ++at)
        if (std::memcmp(&image_[at], &value, sizeof value) == 0)
          places_.push_back({item, at, sizeof value});
  }

  void write_classes() {
    if (spoilt(class_names_item, missing)) return;
    const hsize_t count[] = {3, 1};
    const h5::Space space(
        H5Screate_simple(spoilt(class_names_item, other_rank) ? 2 : 1, count, nullptr));
    if (spoilt(class_names_item, other_type))
      return keep(class_names_item, make("classes", H5T_STD_I32LE, space, H5P_DEFAULT));
    const bool variable = spoilt(class_names_item, as_bytes) || spoilt(class_names_item, longer);
    const h5::Type text(H5Tcopy(H5T_C_S1));
    H5Tset_size(text.get(), variable ? H5T_VARIABLE : 4);
    const h5::Data data = make("classes", text.get(), space, H5P_DEFAULT);
    const char* const names[] = {"cat", nullptr, "dog"};
    const char fixed[] = "cat\0d\0\0\0dogs";
    H5Dwrite(data.get(), text.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
             variable ? static_cast<const void*>(names) : fixed);
    if (!variable) keep(class_names_item, data);
  }

  h5::Data make(const char* name, hid_t type, const h5::Space& space, hid_t created) const {
    h5::Data data(
        H5Dcreate2(file_.get(), name, type, space.get(), H5P_DEFAULT, created, H5P_DEFAULT));
    require_law(static_cast<bool>(data), "HDF5 makes a data set");
    return data;
  }
  /// Records where the item's values are, so that the input can replace them.
  void keep(unsigned item, const h5::Data& data) {
    const haddr_t at = H5Dget_offset(data.get());
    if (at != HADDR_UNDEF) places_.push_back({item, at, H5Dget_storage_size(data.get())});
  }

  /// A contiguous data set of these numbers.
  template <class Value>
  void numbers(unsigned item, const char* name, hid_t type, std::vector<hsize_t> shape,
               const std::vector<Value>& values) {
    if (spoilt(item, missing)) return;
    if (spoilt(item, longer)) ++shape[0];
    if (spoilt(item, other_rank)) shape.push_back(1);
    const hid_t other = H5Tget_class(type) == H5T_FLOAT ? H5T_STD_I64LE : H5T_IEEE_F64LE;
    const hid_t stored = spoilt(item, other_type) ? other : type;
    const h5::Space space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
    const h5::Properties created(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_alloc_time(created.get(), H5D_ALLOC_TIME_EARLY);
    const h5::Data data = make(name, stored, space, created.get());
    if (stored == type && !spoilt(item, longer))
      H5Dwrite(data.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    keep(item, data);
  }

  void write_numbers() {
    const hsize_t rows = form_.rows();
    std::vector<std::int32_t> labels(rows);
    for (std::size_t row = 0; row < rows; ++row) labels[row] = static_cast<std::int32_t>(row % 3);
    if (form_.kind() == Hdf5Form::external && form_.labels_wide()) {
      numbers(labels_item, "labels", H5T_NATIVE_DOUBLE, {rows, 1}, std::vector<double>(rows, 1));
    } else {
      numbers(labels_item, "labels", H5T_NATIVE_INT32, {rows}, labels);
    }
    if (form_.kind() != Hdf5Form::external)
      numbers(crcs_item, "crc32c", H5T_NATIVE_UINT32, {rows}, std::vector<std::uint32_t>(rows, 0));
    if (form_.kind() == Hdf5Form::jpeg) return write_jpegs();
    write_images();
  }

  void write_jpegs() {
    const hsize_t rows = form_.rows();
    const std::size_t channels = this->channels();
    const data::Image image{8, 9, channels, std::vector<std::uint8_t>(72 * channels, 77)};
    const std::string file = data::encode_jpeg(image, 90, "seed");
    std::vector<std::uint8_t> all;
    std::vector<std::uint64_t> offsets = {0};
    std::vector<std::uint16_t> sizes;
    for (std::size_t row = 0; row < rows; ++row) {
      all.insert(all.end(), file.begin(), file.end());
      offsets.push_back(all.size());
      sizes.insert(sizes.end(), {8, 9});
    }
    numbers(offsets_item, "offsets", H5T_NATIVE_UINT64, {rows + 1}, offsets);
    numbers(sizes_item, "sizes", H5T_NATIVE_UINT16, {rows, 2}, sizes);
    numbers(images_item, "jpegs", H5T_NATIVE_UINT8, {all.size()}, all);
  }

  std::vector<hsize_t> image_shape() const {
    const hsize_t n = form_.rows(), h = form_.height(), w = form_.width(), c = form_.channels();
    if (form_.kind() == Hdf5Form::external && form_.flat()) return {n, h, w};
    if (form_.kind() == Hdf5Form::external && form_.channels_first()) return {n, c, h, w};
    return {n, h, w, c};
  }

  void write_images() {
    std::vector<hsize_t> shape = image_shape();
    if (spoilt(images_item, other_rank)) shape.push_back(1);
    const h5::Space space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
    const h5::Properties created(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_alloc_time(created.get(), H5D_ALLOC_TIME_EARLY);
    if (form_.compact() && !form_.chunked()) {
      H5Pset_layout(created.get(), H5D_COMPACT);
      H5Pset_alloc_time(created.get(), H5D_ALLOC_TIME_DEFAULT);
    }
    std::vector<hsize_t> chunk = shape;
    if (form_.chunked()) {
      chunk[0] = form_.chunk_rows();
      if (form_.rows_cut()) chunk[1] = (chunk[1] + 1) / 2;
      H5Pset_chunk(created.get(), static_cast<int>(chunk.size()), chunk.data());
      H5Pset_alloc_time(created.get(), H5D_ALLOC_TIME_INCR);
      add_filters(created.get());
    }
    const h5::Data data = make("images", form_.number(), space, created.get());
    if (form_.chunked())
      write_chunks(data, shape, chunk);
    else
      keep(images_item, data);
  }

  void add_filters(hid_t created) const {
    const unsigned flags = form_.filters(), element = 2;
    if ((flags & 1) != 0) H5Pset_shuffle(created);
    if ((flags & 2) != 0) H5Pset_deflate(created, 1);
    if ((flags & 4) != 0) H5Pset_fletcher32(created);
    constexpr std::array<H5Z_filter_t, 4> others = {0, 32000, 32001, 32015};
    if (flags / 8 != 0)
      H5Pset_filter(created, others[flags / 8 % 4], H5Z_FLAG_OPTIONAL, 1, &element);
  }

  /// Writes raw bytes that no filter made; the input replaces them.
  void write_chunks(const h5::Data& data, const std::vector<hsize_t>& shape,
                    const std::vector<hsize_t>& chunk) {
    const std::vector<std::uint8_t> stored(64 + form_.of[8] % 8 * 32u, 0);
    std::vector<hsize_t> origin(shape.size(), 0);
    for (origin[0] = 0; origin[0] < shape[0]; origin[0] += chunk[0])
      for (origin[1] = 0; origin[1] < shape[1]; origin[1] += chunk[1]) {
        if (form_.of[9] > 127 && origin[0] > 0) continue;  // never written
        H5Dwrite_chunk(data.get(), H5P_DEFAULT, form_.of[9] / 16 % 4, origin.data(), stored.size(),
                       stored.data());
        unsigned skipped = 0;
        haddr_t at = HADDR_UNDEF;
        hsize_t bytes = 0;
        H5Dget_chunk_info_by_coord(data.get(), origin.data(), &skipped, &at, &bytes);
        if (at != HADDR_UNDEF) places_.push_back({images_item, at, bytes});
      }
  }

  const Hdf5Form form_;
  h5::File file_;
  std::vector<std::uint8_t> image_;
  std::vector<Hdf5Place> places_;
};

/// Corrects the rows' checksums for the stored bytes and labels, so that the code after the check
/// is reached, too.
class Hdf5Sums {
 public:
  Hdf5Sums(std::vector<std::uint8_t>& file, const std::vector<Hdf5Place>& places)
      : file_(file), places_(places) {}

  void put_right(const Hdf5Form& form) {
    const auto crcs = find(crcs_item), labels = find(labels_item), images = find(images_item);
    const auto offsets = find(offsets_item);
    const std::size_t rows = form.rows();
    if (crcs.size() != 4 * rows || labels.size() != 4 * rows || form.chunked()) return;
    for (std::size_t row = 0; row < rows; ++row) {
      std::uint64_t begin = images.size() / rows * row, end = images.size() / rows * (row + 1);
      if (form.kind() == Hdf5Form::jpeg) {
        if (offsets.size() != 8 * (rows + 1)) return;
        std::memcpy(&begin, &offsets[8 * row], 8);
        std::memcpy(&end, &offsets[8 * row + 8], 8);
      }
      if (begin > end || end > images.size()) continue;
      std::int32_t label = 0;
      std::memcpy(&label, &labels[4 * row], 4);
      const std::uint32_t sum = data::row_crc(images.subspan(begin, end - begin), label);
      std::memcpy(&crcs[4 * row], &sum, 4);
    }
  }

 private:
  std::span<std::uint8_t> find(unsigned item) {
    for (const Hdf5Place& place : places_)
      if (place.item == item) return std::span(file_).subspan(place.offset, place.bytes);
    return {};
  }
  std::vector<std::uint8_t>& file_;
  const std::vector<Hdf5Place>& places_;
};

/// A file of the form that the input's first bytes choose; the next two bytes say which places get
/// values from the rest of the input. It is valid until the next call.
inline std::span<const std::uint8_t> hdf5_file(Input& input) {
  struct Made {
    std::vector<std::uint8_t> image;
    std::vector<Hdf5Place> places;
  };
  constexpr std::size_t kept = 512;
  constexpr unsigned others = 15, sums = 1u << others;
  static std::map<std::array<std::uint8_t, Hdf5Form::bytes>, Made> made;
  static std::vector<std::uint8_t> file;
  Hdf5Form form;
  for (std::uint8_t& byte : form.of) byte = input.byte();
  auto found = made.find(form.of);
  if (found == made.end()) {
    if (made.size() == kept) made.clear();
    const h5::Session session;
    Hdf5Maker maker(form);
    found = made.emplace(form.of, Made{std::move(maker.image()), maker.places()}).first;
  }
  const Made& which = found->second;
  file = which.image;
  const unsigned taken = input.byte() | input.byte() << 8u;
  for (std::size_t p = 0; p < which.places.size(); ++p) {
    if ((taken >> p % others & 1) == 0) continue;
    const Hdf5Place& place = which.places[p];
    const auto values = input.take(place.bytes);
    std::copy(values.begin(), values.end(),
              file.begin() + static_cast<std::ptrdiff_t>(place.offset));
  }
  if ((taken & sums) != 0) Hdf5Sums(file, which.places).put_right(form);
  return file;
}

}  // namespace lockstep::fuzz
