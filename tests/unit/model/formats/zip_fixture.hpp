#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <zlib.h>

#include "tests/unit/model/formats/formats_fixture.hpp"

namespace lockstep::test {

/// A zip as other programs make it, with what a test wants to be wrong.
struct ZipForm {
  bool deflated = false, zip64 = false;
  std::uint16_t flags = 0, method = 0;  ///< method: another one than deflated says
  std::uint32_t crc_change = 0, size_change = 0;
};

inline std::string deflate_raw(const std::string& bytes) {
  std::string packed(compressBound(bytes.size()) + 16, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

using Members = std::vector<std::pair<std::string, std::string>>;

inline std::string zip_file(const Members& members, const ZipForm& form = {},
                            const std::string& comment = "") {
  std::string zip, directory;
  for (const auto& [name, bytes] : members) {
    const std::string packed = form.deflated ? deflate_raw(bytes) : bytes;
    const auto sum = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
    const auto size = static_cast<std::uint32_t>(bytes.size() + form.size_change);
    const std::uint16_t method = form.method != 0 ? form.method : form.deflated ? 8 : 0;
    const std::string fields =
        little(form.flags) + little(method) + little(0) + little(sum + form.crc_change);
    const auto lengths = [&](bool wide) {
      return wide ? little(0xffffffffu) + little(0xffffffffu)
                  : little(static_cast<std::uint32_t>(packed.size())) + little(size);
    };
    const std::string extra =
        form.zip64
            ? little(std::uint16_t{1}) + little(std::uint16_t{24}) + little(std::uint64_t{size}) +
                  little(std::uint64_t{packed.size()}) + little(std::uint64_t{zip.size()})
            : "";
    directory += "PK\x01\x02" + little(20) + fields + lengths(form.zip64) +
                 little(static_cast<std::uint16_t>(name.size())) +
                 little(static_cast<std::uint16_t>(extra.size())) + std::string(10, '\0') +
                 little(form.zip64 ? 0xffffffffu : static_cast<std::uint32_t>(zip.size())) + name +
                 extra;
    zip += "PK\x03\x04" + little(std::uint16_t{20}) + fields + lengths(false) +
           little(static_cast<std::uint16_t>(name.size())) + little(std::uint16_t{0}) + name +
           packed;
  }
  const std::uint64_t offset = zip.size(), count = members.size();
  zip += directory;
  if (form.zip64)
    zip += "PK\x06\x06" + little(std::uint64_t{44}) + std::string(12, '\0') + little(count) +
           little(count) + little(std::uint64_t{directory.size()}) + little(offset) + "PK\x06\x07" +
           little(0) + little(offset + directory.size()) + little(1);
  const auto narrow = [&](std::uint64_t number) {
    return form.zip64 ? 0xffffffffu : static_cast<std::uint32_t>(number);
  };
  const auto short_count = static_cast<std::uint16_t>(form.zip64 ? 0xffff : count);
  return zip + "PK\x05\x06" + little(0) + little(short_count) + little(short_count) +
         little(narrow(directory.size())) + little(narrow(offset)) +
         little(static_cast<std::uint16_t>(comment.size())) + comment;
}

}  // namespace lockstep::test
