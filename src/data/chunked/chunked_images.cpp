#include "data/chunked/chunked_images.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "data/chunked/chunk_filters.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t largest_block = std::size_t{1} << 30;

/// HDF5 has no name for it; open as long as the program runs.
hid_t half_type() {
  static const hid_t type = [] {
    const hid_t made = H5Tcopy(H5T_NATIVE_FLOAT);
    H5Tset_fields(made, 15, 10, 5, 0, 10);
    H5Tset_size(made, 2);
    H5Tset_ebias(made, 15);
    return made;
  }();
  return type;
}

/// Others of 16 bits are widened by HDF5.
bool is_half(hid_t type) {
  const h5::Type one(H5Tcopy(type));
  return H5Tset_order(one.get(), H5Tget_order(half_type())) >= 0 &&
         H5Tequal(one.get(), half_type()) > 0;
}

}  // namespace

std::optional<Number> number_of(hid_t type) {
  const std::size_t bytes = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) {
    if (is_half(type)) return Number::f16;
    if (bytes <= 4) return Number::f32;
    return bytes == 8 ? std::optional(Number::f64) : std::nullopt;
  }
  if (H5Tget_class(type) != H5T_INTEGER) return std::nullopt;
  const bool has_sign = H5Tget_sign(type) == H5T_SGN_2;
  if (bytes == 1) return has_sign ? Number::i8 : Number::u8;
  if (bytes == 2) return has_sign ? Number::i16 : Number::u16;
  if (bytes == 4) return has_sign ? Number::i32 : Number::u32;
  if (bytes == 8) return has_sign ? Number::i64 : Number::u64;
  return std::nullopt;
}

hid_t memory_type(Number number) {
  switch (number) {
    case Number::u8:
      return H5T_NATIVE_UINT8;
    case Number::i8:
      return H5T_NATIVE_INT8;
    case Number::u16:
      return H5T_NATIVE_UINT16;
    case Number::i16:
      return H5T_NATIVE_INT16;
    case Number::u32:
      return H5T_NATIVE_UINT32;
    case Number::i32:
      return H5T_NATIVE_INT32;
    case Number::u64:
      return H5T_NATIVE_UINT64;
    case Number::i64:
      return H5T_NATIVE_INT64;
    case Number::f16:
      return half_type();
    case Number::f32:
      return H5T_NATIVE_FLOAT;
    case Number::f64:
      return H5T_NATIVE_DOUBLE;
  }
  throw Error("a kind of number without a type");
}

namespace {

/// Whether `type` is `native` in the other byte order.
bool is_turned(hid_t type, hid_t native) {
  const h5::Type other(H5Tcopy(native));
  const H5T_order_t order = H5Tget_order(native) == H5T_ORDER_LE ? H5T_ORDER_BE : H5T_ORDER_LE;
  return H5Tset_order(other.get(), order) >= 0 && H5Tequal(type, other.get()) > 0;
}

void turn_bytes(std::uint8_t* numbers, std::size_t bytes, std::size_t one) {
  const auto turn = [&](auto count) {
    for (std::uint8_t* at = numbers; at != numbers + bytes; at += count)
      std::reverse(at, at + count);
  };
  if (one == 2)  // a constant number becomes few instructions
    turn(std::integral_constant<std::ptrdiff_t, 2>{});
  else if (one == 4)
    turn(std::integral_constant<std::ptrdiff_t, 4>{});
  else
    turn(static_cast<std::ptrdiff_t>(one));
}

}  // namespace

StoredImages::StoredImages(std::filesystem::path path, h5::Data data, Sources sources,
                           const PixelForm& form, std::size_t rows)
    : path_(std::move(path)),
      data_(std::move(data)),
      file_(H5Iget_file_id(data_.get())),
      form_(form),
      rows_(rows),
      sources_(std::move(sources)) {
  const h5::Space space(H5Dget_space(data_.get()));
  extent_.resize(static_cast<std::size_t>(std::max(1, H5Sget_simple_extent_ndims(space.get()))));
  H5Sget_simple_extent_dims(space.get(), extent_.data(), nullptr);
  const h5::Properties created(H5Dget_create_plist(data_.get()));
  remember_files();
  choose_way(created.get());
  if (plain_chunks()) reopen_without_cache();
  const std::size_t row = std::max(form_.stored_bytes(), form_.row_bytes());
  const std::size_t rows_decoded = chunk_.empty() ? 1 : chunk_[0];
  if (rows_decoded > largest_block / row || chunk_bytes() > largest_block) {
    h5::refuse(path_, fmt::format("its images lie in chunks of {} rows of {} bytes; at most 1 GiB "
                                  "is decoded at once: write it with smaller chunks",
                                  rows_decoded, row));
  }
}

StoredImages::~StoredImages() {
  const h5::Session session;
  data_.reset();
  sources_ = {};
  file_.reset();
}

void StoredImages::choose_way(hid_t created) {
  const H5D_layout_t layout = H5Pget_layout(created);
  if (layout == H5D_VIRTUAL) {
    layout_ = "virtual";
  } else if (layout != H5D_CHUNKED) {
    layout_ = layout == H5D_COMPACT ? "compact" : "contiguous";
    if (H5Pget_external_count(created) > 0) layout_ = "in external files";
  } else {
    chunk_.resize(extent_.size());
    H5Pget_chunk(created, static_cast<int>(chunk_.size()), chunk_.data());
    block_rows_ = std::min<std::size_t>(chunk_[0], rows_);
    std::size_t pieces = 1;
    for (std::size_t d = 1; d < chunk_.size(); ++d)
      pieces *= (extent_[d] + chunk_[d] - 1) / chunk_[d];
    layout_ = "chunks of " + counted(chunk_[0], "row");
    if (pieces > 1) layout_ += fmt::format(", each row cut into {} of them", pieces);
    const std::string names = filter_names(created);
    layout_ += ", " + (names.empty() ? std::string("not compressed") : names);
    // Chunks of another number type are left to HDF5, which converts them, as it does the byte
    // order of those without filters.
    const h5::Type type(H5Dget_type(data_.get()));
    const bool same = H5Tequal(type.get(), memory_type(form_.number)) > 0;
    turned_ = !same && is_turned(type.get(), memory_type(form_.number));
    if (same || turned_) filters_ = ChunkFilters::of(created);
    if (turned_ && plain_chunks()) filters_.reset();
  }
}

// HDF5's chunk cache would only be another copy of what is kept here.
void StoredImages::reopen_without_cache() {
  std::string name(
      static_cast<std::size_t>(std::max<ssize_t>(0, H5Iget_name(data_.get(), nullptr, 0))) + 1,
      '\0');
  H5Iget_name(data_.get(), name.data(), name.size());
  const h5::Properties access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_chunk_cache(access.get(), 1, 0, 1);
  data_ = {};
  data_ = h5::Data(H5Dopen2(file_.get(), name.c_str(), access.get()));
  if (!data_) h5::refuse_with_cause(path_, "its images cannot be opened");
}

void StoredImages::remember_files() {
  for (const SourceFile& file : sources_.files) stamps_.push_back(stamp_of(file.path));
  void* handle = nullptr;
  if (H5Fget_vfd_handle(file_.get(), H5P_DEFAULT, &handle) >= 0 && handle != nullptr) {
    descriptor_ = *static_cast<const int*>(handle);  // of the driver that shard files are opened by
    stamp_ = stamp_of(descriptor_, path_);
  }
}

// Called after a read. Other programs' files have no checksums that would show a change.
void StoredImages::require_unchanged(std::size_t block) const {
  if (descriptor_ >= 0) require_same(stamp_of(descriptor_, path_), stamp_, path_, rows_text(block));
  const std::size_t first = block * block_rows_, last = first + rows_of(block) - 1;
  for (std::size_t i = 0; i < stamps_.size(); ++i)
    if (const SourceFile& file = sources_.files[i]; file.first <= last && file.last >= first)
      require_same(stamp_of(file.path), stamps_[i], path_, rows_text(block), file.path.string());
}

std::size_t StoredImages::rows_of(std::size_t block) const {
  return std::min(block_rows_, rows_ - block * block_rows_);
}

std::size_t StoredImages::chunk_bytes() const {
  return std::accumulate(chunk_.begin(), chunk_.end(), bytes_of(form_.number),
                         std::multiplies<std::size_t>());
}

std::string StoredImages::rows_text(std::size_t block) const {
  const std::size_t first = block * block_rows_, count = rows_of(block);
  return count == 1 ? fmt::format("row {}", first)
                    : fmt::format("rows {} to {}", first, first + count - 1);
}

void StoredImages::decode(std::size_t block, std::uint8_t* pixels) const {
  if (form_.is_same() && form_.missing.empty()) return decode_stored(block, pixels);
  thread_local std::vector<std::uint8_t> numbers;
  const std::size_t rows = rows_of(block);
  if (numbers.size() < rows * form_.stored_bytes()) numbers.resize(rows * form_.stored_bytes());
  decode_stored(block, numbers.data());
  for (std::size_t row = 0; row < rows; ++row) {
    const auto bad =
        form_.convert(&numbers[row * form_.stored_bytes()], pixels + row * form_.row_bytes());
    if (!bad) continue;
    const std::lock_guard lock(bad_mutex_);
    bad_.emplace(block * block_rows_ + row, *bad);
  }
}

std::optional<BadNumber> StoredImages::bad_number(std::size_t row) const {
  const std::lock_guard lock(bad_mutex_);
  const auto found = bad_.find(row);
  return found == bad_.end() ? std::nullopt : std::optional(found->second);
}

void StoredImages::decode_stored(std::size_t block, std::uint8_t* numbers) const {
  try {
    if (filters_ && !plain_chunks())
      decode_chunks(block, numbers);
    else
      read_by_hdf5(block, numbers);
  } catch (const InputError&) {
    require_unchanged(block);  // this is then the better reason
    throw;
  }
  require_unchanged(block);
}

void StoredImages::decode_chunks(std::size_t block, std::uint8_t* numbers) const {
  thread_local std::vector<std::uint8_t> stored, decoded, scratch[2];
  const std::size_t bytes = chunk_bytes(), row_bytes = form_.stored_bytes();
  // One chunk holds the whole rows of a whole block: decode it in place.
  const bool direct = bytes == rows_of(block) * row_bytes &&
                      std::equal(chunk_.begin() + 1, chunk_.end(), extent_.begin() + 1);
  std::vector<hsize_t> origin(extent_.size(), 0);
  origin[0] = block * block_rows_;
  for (;;) {
    std::uint32_t skipped = 0;
    fetch(origin, stored, skipped);
    if (!direct && decoded.size() < bytes) decoded.resize(bytes);
    const std::span<std::uint8_t> target(direct ? numbers : decoded.data(), bytes);
    try {
      filters_->undo(skipped, stored, target, scratch);
    } catch (const InputError& error) {
      h5::refuse(path_, fmt::format("{} cannot be decoded: {}", rows_text(block), error.what()));
    }
    if (!direct) place(origin, decoded.data(), block, numbers);
    std::size_t d = extent_.size() - 1;
    for (; d > 0; --d) {
      origin[d] += chunk_[d];
      if (origin[d] < extent_[d]) break;
      origin[d] = 0;
    }
    if (d == 0) break;
  }
  if (turned_) turn_bytes(numbers, rows_of(block) * row_bytes, bytes_of(form_.number));
}

// H5Dget_chunk_info and its relatives search all chunks for one; asking for the size alone does
// not. (Without filters, HDF5 1.10 returns the expected size, and H5Dread_chunk reads as much as
// the file says: such chunks must not come here.)
void StoredImages::fetch(const std::vector<hsize_t>& origin, std::vector<std::uint8_t>& stored,
                         std::uint32_t& skipped) const {
  const h5::Session session;
  hsize_t bytes = 0;
  if (H5Dget_chunk_storage_size(data_.get(), origin.data(), &bytes) < 0)
    h5::refuse_with_cause(path_, fmt::format("the chunk at row {} cannot be found", origin[0]));
  if (bytes == 0) h5::refuse(path_, fmt::format("the chunk at row {} is not there", origin[0]));
  if (bytes > 2 * largest_block)
    h5::refuse(path_, fmt::format("the chunk at row {} is damaged", origin[0]));
  stored.resize(bytes);
  if (H5Dread_chunk(data_.get(), H5P_DEFAULT, origin.data(), &skipped, stored.data()) < 0)
    h5::refuse_with_cause(path_, fmt::format("the chunk at row {} cannot be read", origin[0]));
}

// Copies a chunk's part of the block, run by run; at an edge the chunk extends beyond the data.
void StoredImages::place(const std::vector<hsize_t>& origin, const std::uint8_t* chunk,
                         std::size_t block, std::uint8_t* numbers) const {
  const std::size_t rank = extent_.size();
  std::size_t tail = rank - 1;  // from this dimension on, a run is contiguous in both
  while (tail > 0 && chunk_[tail] == extent_[tail]) --tail;
  std::vector<std::size_t> size(rank), at(rank, 0);
  size[0] = rows_of(block);
  for (std::size_t d = 1; d < rank; ++d)
    size[d] = std::min<std::size_t>(chunk_[d], extent_[d] - origin[d]);
  std::size_t run = size[tail] * bytes_of(form_.number);
  for (std::size_t d = tail + 1; d < rank; ++d) run *= extent_[d];
  for (bool more = true; more;) {
    std::size_t from = at[0], to = at[0];
    for (std::size_t d = 1; d < rank; ++d) {
      from = from * chunk_[d] + at[d];
      to = to * extent_[d] + at[d] + origin[d];
    }
    std::memcpy(numbers + to * bytes_of(form_.number), chunk + from * bytes_of(form_.number), run);
    more = false;
    for (std::size_t d = tail; d-- > 0 && !more;) {
      more = ++at[d] < size[d];
      if (!more) at[d] = 0;
    }
  }
}

void StoredImages::read_by_hdf5(std::size_t block, std::uint8_t* numbers) const {
  const h5::Session session;
  std::vector<hsize_t> start(extent_.size(), 0), count = extent_;
  start[0] = block * block_rows_;
  count[0] = rows_of(block);
  const h5::Space space(H5Dget_space(data_.get()));
  const h5::Space memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr));
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(),
                          nullptr) < 0 ||
      H5Dread(data_.get(), memory_type(form_.number), memory.get(), space.get(), H5P_DEFAULT,
              numbers) >= 0)
    return;
  const std::string cause = h5::last_cause(), filter = missing_filter(data_.get());
  h5::refuse(path_, fmt::format("{} cannot be read: {}", rows_text(block),
                                filter.empty() ? "HDF5: " + cause : filter));
}

}  // namespace lockstep::data
