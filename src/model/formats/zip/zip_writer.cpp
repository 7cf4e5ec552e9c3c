#include "model/formats/zip/zip_writer.hpp"

#include <limits>

#include <fmt/core.h>
#include <zlib.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/wire.hpp"
#include "model/formats/zip/zip_layout.hpp"

namespace lockstep::model {
namespace {

constexpr std::size_t alignment = 64, field_head = 4;
constexpr std::uint16_t version = 20;            // of the format: 2.0
constexpr std::uint16_t first_day = 1 << 5 | 1;  // 1 January 1980
constexpr std::uint16_t padding_field = 0x4246;  // as PyTorch's: "FB", filled with 'Z'

template <class Number>
void put(std::string& bytes, Number number) {
  put_little_endian(bytes, number, sizeof number);
}

std::uint32_t sum_of(std::string_view bytes, std::uint32_t sum) {
  if (bytes.empty()) return sum;  // zlib would begin again at a null pointer
  check(bytes.size() <= std::numeric_limits<uInt>::max(), "a member of 4 GB");
  return static_cast<std::uint32_t>(
      ::crc32(sum, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

}  // namespace

void ZipWriter::add(std::string_view name, std::string_view begin, std::string_view rest) {
  const std::size_t bytes = begin.size() + rest.size(), offset = zip_.size();
  require(offset + bytes < too_large_32 && members_ < std::numeric_limits<std::uint16_t>::max(),
          "the model is too large for a zip without 64 bits");
  const std::size_t after = offset + local_bytes + name.size() + field_head;
  const std::size_t padding = (alignment - after % alignment) % alignment;
  const std::uint32_t sum = sum_of(rest, sum_of(begin, 0));
  const auto describe = [&](std::string& to) {
    put(to, version);
    put(to, std::uint16_t{0});  // flags
    put(to, stored);
    put(to, std::uint16_t{0});  // time
    put(to, first_day);
    put(to, sum);
    put(to, static_cast<std::uint32_t>(bytes));  // in the zip
    put(to, static_cast<std::uint32_t>(bytes));  // unpacked
    put(to, static_cast<std::uint16_t>(name.size()));
  };
  put(zip_, local_mark);
  describe(zip_);
  put(zip_, static_cast<std::uint16_t>(field_head + padding));
  zip_ += name;
  put(zip_, padding_field);
  put(zip_, static_cast<std::uint16_t>(padding));
  zip_.append(padding, 'Z');
  zip_ += begin;
  zip_ += rest;

  put(directory_, entry_mark);
  put(directory_, version);  // made by
  describe(directory_);
  put(directory_, std::uint64_t{0});  // extra field, comment, disk, internal attributes
  put(directory_, std::uint32_t{0});  // external attributes
  put(directory_, static_cast<std::uint32_t>(offset));
  directory_ += name;
  ++members_;
}

std::string ZipWriter::finish(std::string_view comment) && {
  check(comment.size() <= longest_comment, "a comment fits into a zip");
  const std::size_t offset = zip_.size();
  require(offset + directory_.size() < too_large_32,
          "the model is too large for a zip without 64 bits");
  zip_ += directory_;
  put(zip_, end_mark);
  put(zip_, std::uint32_t{0});  // two numbers of disks
  put(zip_, members_);
  put(zip_, members_);
  put(zip_, static_cast<std::uint32_t>(directory_.size()));
  put(zip_, static_cast<std::uint32_t>(offset));
  put(zip_, static_cast<std::uint16_t>(comment.size()));
  zip_ += comment;
  return std::move(zip_);
}

}  // namespace lockstep::model
