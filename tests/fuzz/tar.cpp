// Fuzzes a tar, compressed or not. The first byte says whether its members are read in order, or it
// is indexed and images are read by index; and whether the headers' checksums are corrected first,
// because otherwise hardly any change would get past them.
#include <sys/stat.h>

#include "lockstep/pack/source/source.hpp"
#include "pack/archive/tar.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/unit/pack/tar_fixture.hpp"

namespace lockstep::fuzz {
namespace {

using test::tar_end, test::tar_header, test::tar_member;

constexpr std::uint8_t walk_flag = 1, repair_flag = 2;
constexpr std::size_t tar_block = 512;

std::string pax(const std::string& records) { return tar_member("pax", records, 'x'); }

/// Corrects the checksum of each block that looks like a header.
void repair_checksums(std::vector<std::uint8_t>& tar) {
  for (std::size_t at = 0; at + tar_block <= tar.size(); at += tar_block) {
    if (!std::equal(tar.begin() + static_cast<std::ptrdiff_t>(at + 257),
                    tar.begin() + static_cast<std::ptrdiff_t>(at + 262), "ustar"))
      continue;
    std::uint8_t* const field = &tar[at + 148];
    std::fill(field, field + 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = 0; i < tar_block; ++i) sum += tar[at + i];
    char digits[8];
    std::snprintf(digits, sizeof digits, "%06o", sum);
    std::copy(digits, digits + 7, field);
  }
}

void walk(const ScratchFile& file, std::size_t bytes) {
  pack::TarReader reader(file.descriptor(), bytes, "some.tar");
  std::uint64_t last = 0;
  for (pack::TarMember member; reader.next(member);) {
    require_law(member.header >= last && member.offset > member.header, "a tar is read forwards");
    require_law(member.offset <= bytes && member.bytes <= bytes - member.offset,
                "a member lies in the file");
    require_law(reader.content(member, bytes).size() == member.bytes, "a member has its content");
    last = member.offset;
  }
}

void index_and_read(const ScratchFile& file, const std::filesystem::path& folder) {
  pack::SourceSpec spec;
  spec.kind = "tar";
  spec.files = {file.path()};
  pack::index_piece(spec, 0, folder);
  const auto source = pack::open_source(spec, folder);
  for (std::size_t row = 0; row < std::min<std::size_t>(source->rows(), 4); ++row) {
    require_law(source->read_file(row).size() < std::size_t{1} << 29, "an image is not too large");
    require_law(static_cast<std::size_t>(source->label(row)) < source->classes().size(),
                "a label has its class");
  }
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string image(20, 'j');
  const std::string plain =
      tar_member("train/cat/1.jpg", image) + tar_member("./val/dog/2.png", image) + tar_end();
  const std::string web = tar_member("a.jpg", image) + tar_member("a.cls", "3\n") +
                          tar_member("b.json", R"({"label": "dog"})") +
                          tar_member("b.jpeg", image) + tar_end();
  const std::string names =
      pax("22 path=deep/cat/3.jpg\n") + tar_member("short", image) +
      tar_member("././@LongLink", "long/dog/4.jpg" + std::string(1, '\0'), 'L') +
      tar_member("short", image) + pax("11 size=20\n") + tar_member("c/6.jpg", image) +
      tar_member("5.jpg", image, '0', "prefix/cat") + tar_end();
  const std::string links = tar_member("cat/1.jpg", "", '2') + tar_header("cat/", 0, '5') +
                            tar_member("cat/2.jpg", image, 'S') + tar_end();
  // The plain tar compressed by gzip and zstd, which is decompressed first.
  std::vector<std::string> all;
  for (const std::string& tar : {plain, web, names, links})
    for (const char how :
         {char{0}, char{walk_flag}, char{walk_flag | repair_flag}, char{repair_flag}})
      all.push_back(how + tar);
  for (const char* magic : {"\x1F\x8B\x08", "\x28\xB5\x2F\xFD"})
    all.push_back(std::string(1, '\0') + magic + std::string(20, 1));
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  static const Scratch scratch;
  static ScratchFile file(scratch, "some.tar");
  const std::uint8_t how = bytes[0];
  std::vector<std::uint8_t> tar(bytes.begin() + 1, bytes.end());
  if ((how & repair_flag) != 0) repair_checksums(tar);
  file.put(tar);
  if ((how & walk_flag) != 0)
    walk(file, tar.size());
  else
    index_and_read(file, scratch.path());
}

}  // namespace lockstep::fuzz
