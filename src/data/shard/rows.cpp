#include "data/shard/rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/data/batch.hpp"

namespace lockstep::data {

std::uint32_t row_crc(std::span<const std::uint8_t> image, std::int32_t label) {
  static_assert(std::endian::native == std::endian::little, "the lowest byte of elements is first");
  const auto bits = static_cast<std::uint32_t>(label);
  std::uint8_t bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(bits >> (8 * i));
  return crc32c(bytes, sizeof bytes, crc32c(image.data(), image.size()));
}

std::int32_t label_of_targets(std::span<const float> targets) {
  std::uint32_t crc = 0;
  for (const float target : targets) {
    const std::uint32_t bits =
        std::isnan(target) ? 0x7fc00000 : std::bit_cast<std::uint32_t>(target);
    std::uint8_t bytes[4];
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(bits >> (8 * i));
    crc = crc32c(bytes, sizeof bytes, crc);
  }
  return static_cast<std::int32_t>(crc);
}

RowChecksums::RowChecksums(std::filesystem::path path, std::string what,
                           std::vector<std::uint32_t> crcs, std::vector<std::int32_t> targets)
    : path_(std::move(path)),
      what_(std::move(what)),
      crcs_(std::move(crcs)),
      targets_(std::move(targets)) {}

void RowChecksums::check(std::size_t row, std::int32_t label, std::span<const std::uint8_t> bytes,
                         const FileBytes* file) const {
  if (crcs_.empty()) return;
  const std::uint32_t stored = crcs_[row],
                      crc = row_crc(bytes, targets_.empty() ? label : targets_[row]);
  if (crc == stored) return;
  const CopiedFile* copy = nullptr;
  if (file != nullptr) {
    file->require_read(row);  // missing pages are not a damaged row
    copy = file->copied();
  }
  throw BadRow(fmt::format(
      "{}: row {} is damaged: the CRC-32C of its {} and its label is {:08x}, but {:08x} is stored; "
      "restore the file or pack it again{}",
      path_.string(), row, what_, crc, stored,
      copy != nullptr ? fmt::format(" (and remove its copy {})", copy->path().string())
                      : std::string()));
}

namespace {

/// The row alone is bad, unless a file's attributes say of its numbers what a key should say.
[[noreturn]] void refuse_number(const PixelForm& form, const std::filesystem::path& path,
                                std::size_t row, const BadNumber& bad) {
  const std::string text = fmt::format("{}: {}", path.string(), not_a_pixel(form, row, bad));
  if (bad.is_missing) throw InputError(text);
  throw BadRow(text);
}

/// Throws BadRow where a value of a row is no number.
void require_numbers(const PixelForm& form, const std::filesystem::path& path, std::size_t row,
                     const std::uint8_t* elements) {
  if (const auto bad = form.find_bad(elements)) refuse_number(form, path, row, *bad);
}

/// Whether numbers are widened or planes become pixels; but not where floats become uint8.
bool is_converted(const PixelForm& form) {
  return !form.is_same() && !(form.element == Element::u8 && is_float(form.number));
}

}  // namespace

ContiguousRows::ContiguousRows(std::unique_ptr<FileBytes> file, const PixelForm& form,
                               RowChecksums checksums)
    : file_(std::move(file)), form_(form), checksums_(std::move(checksums)) {}

ByteRange ContiguousRows::range(std::size_t row, std::size_t) const {
  const std::uint64_t bytes = form_.stored_bytes();
  return {row * bytes, (row + 1) * bytes};
}

void ContiguousRows::read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const {
  if (form_.is_same() && form_.missing.empty())
    file_->read(row, range(row).begin, to);
  else
    read_converted(row, to.data());
  checksums_.check(row, label, to, file_.get());
  require_numbers(form_, file_->path(), row, to.data());
}

void ContiguousRows::read_converted(std::size_t row, std::uint8_t* pixels) const {
  thread_local std::vector<std::uint8_t> numbers;
  numbers.resize(form_.stored_bytes());
  const std::uint8_t* const mapped = file_->mapped(row, range(row).begin, numbers.size());
  if (mapped == nullptr) file_->read(row, range(row).begin, numbers);
  const auto bad = form_.convert(mapped == nullptr ? numbers.data() : mapped, pixels);
  if (mapped != nullptr) file_->require_read(row);  // pages that are gone are the better reason
  if (bad) refuse_number(form_, file_->path(), row, *bad);
}

std::span<const std::uint8_t> ContiguousRows::in_place(std::size_t row, std::int32_t label) const {
  if (!form_.is_same() || !form_.missing.empty()) return {};
  const std::uint8_t* pixels = file_->mapped(row, range(row).begin, form_.row_bytes());
  if (pixels == nullptr) return {};
  checksums_.check(row, label, {pixels, form_.row_bytes()}, file_.get());
  file_->require_read(row);
  require_numbers(form_, file_->path(), row, pixels);
  return {pixels, form_.row_bytes()};
}

bool ContiguousRows::prepare(std::size_t row) const {
  file_->ask_for(range(row).begin, form_.stored_bytes());
  return false;
}

void ContiguousRows::describe(Storage& storage) const {
  storage.converted = storage.converted || is_converted(form_);
}

PickedRows::PickedRows(std::vector<std::unique_ptr<Rows>> parts, std::vector<Pick> picks,
                       Element element)
    : parts_(std::move(parts)),
      runs_(parts_.size()),
      pixel_bytes_(picks.size() * bytes_of(element)) {
  const std::size_t one = bytes_of(element);
  for (std::size_t c = 0; c < picks.size(); ++c) {
    std::vector<Run>& runs = runs_[picks[c].part];
    const std::size_t from = picks[c].channel * one, to = c * one;
    if (!runs.empty() && runs.back().from + runs.back().bytes == from &&
        runs.back().to + runs.back().bytes == to)
      runs.back().bytes += one;
    else
      runs.push_back({from, to, one});
  }
}

std::size_t PickedRows::bytes(std::size_t row) const {
  const auto [height, width] = size(row);
  return height * width * pixel_bytes_;
}

namespace {

/// Copies some bytes of each pixel from one array of pixels to another, of other sizes.
void copy_pixels(const std::uint8_t* from, std::size_t step, std::uint8_t* to, std::size_t to_step,
                 std::size_t pixels, std::size_t bytes) {
  const auto copy = [&](auto count) {
    for (std::size_t i = 0; i < pixels; ++i) std::memcpy(to + i * to_step, from + i * step, count);
  };
  if (bytes == 1)  // a constant number needs no call
    copy(std::integral_constant<std::size_t, 1>{});
  else if (bytes == 2)
    copy(std::integral_constant<std::size_t, 2>{});
  else if (bytes == 4)
    copy(std::integral_constant<std::size_t, 4>{});
  else
    copy(bytes);
}

}  // namespace

void PickedRows::read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const {
  thread_local std::vector<std::uint8_t> buffer;
  const std::size_t pixels = to.size() / pixel_bytes_;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (runs_[p].empty()) continue;
    buffer.resize(parts_[p]->bytes(row));
    const std::span<const std::uint8_t> mapped = parts_[p]->in_place(row, label);
    if (mapped.empty()) parts_[p]->read(row, label, buffer);
    const std::uint8_t* const whole = mapped.empty() ? buffer.data() : mapped.data();
    for (const Run& run : runs_[p])
      copy_pixels(whole + run.from, buffer.size() / pixels, to.data() + run.to, pixel_bytes_,
                  pixels, run.bytes);
    if (mapped.empty()) continue;
    for (const FileBytes* file : parts_[p]->files()) file->require_read(row);
  }
}

std::vector<FileBytes*> PickedRows::files() {
  std::vector<FileBytes*> all;
  for (const auto& part : parts_) {
    const std::vector<FileBytes*> own = part->files();
    if (own.empty()) return {};
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

ByteRange PickedRows::range(std::size_t row, std::size_t file) const {
  return parts_[file]->range(row, 0);  // each part has one
}

bool PickedRows::prepare(std::size_t row) const {
  bool decoded = false;
  for (const auto& part : parts_) decoded = part->prepare(row) || decoded;
  return decoded;
}

void PickedRows::describe(Storage& storage) const {
  for (const auto& part : parts_) part->describe(storage);
}

ChunkedRows::ChunkedRows(std::unique_ptr<StoredImages> images, BlockCache& cache,
                         RowChecksums checksums)
    : images_(std::move(images)),
      cache_(cache),
      file_(cache.add_file()),
      checksums_(std::move(checksums)) {}

std::array<std::size_t, 2> ChunkedRows::size(std::size_t) const {
  return {images_->form().height, images_->form().width};
}

std::size_t ChunkedRows::block_bytes(std::size_t block) const {
  return images_->rows_of(block) * images_->form().row_bytes();
}

void ChunkedRows::read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const {
  const std::size_t rows = images_->block_rows(), block = row / rows;
  const auto kept = cache_.get({file_, block}, block_bytes(block),
                               [&](std::uint8_t* pixels) { images_->decode(block, pixels); });
  if (const auto bad = images_->bad_number(row))
    refuse_number(images_->form(), images_->path(), row, *bad);
  std::memcpy(to.data(), kept->memory.get() + row % rows * to.size(), to.size());
  checksums_.check(row, label, to, nullptr);
  require_numbers(images_->form(), images_->path(), row, to.data());
}

bool ChunkedRows::prepare(std::size_t row) const {
  const std::size_t block = row / images_->block_rows();
  try {
    return cache_.prepare({file_, block}, block_bytes(block),
                          [&](std::uint8_t* pixels) { images_->decode(block, pixels); });
  } catch (const InputError&) {
    return false;
  }
}

void ChunkedRows::describe(Storage& storage) const {
  const bool slower = images_->through_hdf5() && !storage.through_hdf5;
  if (slower || images_->block_rows() > storage.block_rows || storage.layout == "contiguous") {
    storage.layout = images_->layout();
    storage.through_hdf5 = storage.through_hdf5 || images_->through_hdf5();
  }
  storage.contiguous = false;
  storage.converted = storage.converted || is_converted(images_->form());
  storage.block_rows = std::max(storage.block_rows, images_->block_rows());
}

JpegRows::JpegRows(std::unique_ptr<FileBytes> file, std::vector<std::uint64_t> ends,
                   std::vector<std::uint16_t> sizes, RowChecksums checksums)
    : file_(std::move(file)),
      ends_(std::move(ends)),
      sizes_(std::move(sizes)),
      checksums_(std::move(checksums)) {}

std::array<std::size_t, 2> JpegRows::size(std::size_t row) const {
  return {sizes_[2 * row], sizes_[2 * row + 1]};
}

void JpegRows::read(std::size_t row, std::int32_t label, std::span<std::uint8_t> to) const {
  file_->read(row, ends_[row], to);
  checksums_.check(row, label, to, file_.get());
}

bool JpegRows::prepare(std::size_t row) const {
  file_->ask_for(ends_[row], bytes(row));
  return false;
}

}  // namespace lockstep::data
