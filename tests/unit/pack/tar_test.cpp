#include "pack/archive/tar.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <zlib.h>

#include <catch2/catch.hpp>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/unit/pack/tar_fixture.hpp"

using namespace lockstep;
using namespace lockstep::pack;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

/// Names and contents of all files in the archive.
std::vector<std::pair<std::string, std::string>> members_of(const std::string& archive) {
  const Folder folder;
  const auto path = folder.path / "a.tar";
  write_file(path, archive);
  const Owned<int, ::close, -1> file(::open(path.c_str(), O_RDONLY));
  TarReader reader(file.get(), archive.size(), "a.tar");
  std::vector<std::pair<std::string, std::string>> files;
  for (TarMember member; reader.next(member);)
    if (member.kind == TarMember::Kind::file)
      files.emplace_back(member.name, reader.content(member, 1 << 20));
  return files;
}

using Files = std::vector<std::pair<std::string, std::string>>;

std::string pax(const std::string& record) { return tar_member("pax", record, 'x'); }

}  // namespace

TEST_CASE("a tar's members are found, whatever their length", "[tar]") {
  Files want;
  std::string archive;
  for (const std::size_t bytes : {0, 1, 511, 512, 513, 5000, 100'000}) {
    want.emplace_back("f" + std::to_string(bytes), std::string(bytes, 'x'));
    archive += tar_member(want.back().first, want.back().second);
  }
  CHECK(members_of(archive + tar_end()) == want);
  CHECK(members_of(archive + tar_end() + std::string(9 * 1024, '\0')) == want);
  CHECK(members_of(tar_end()).empty());
}

TEST_CASE("long names come from a prefix, from pax or from GNU's header", "[tar]") {
  const std::string name = std::string(140, 'n') + "/" + std::string(90, 'f');
  const std::string path_record = "path=" + name + "\n";
  const Files want{{name, "content"}, {"next", "more"}};
  const std::string next = tar_member("next", "more") + tar_end();
  CHECK(members_of(tar_member(std::string(90, 'f'), "content", '0', std::string(140, 'n')) +
                   next) == want);
  CHECK(members_of(pax(std::to_string(path_record.size() + 4) + " " + path_record) +
                   tar_member("short", "content") + next) == want);
  CHECK(members_of(tar_member("././@LongLink", name + '\0', 'L') + tar_member("short", "content") +
                   next) == want);
  CHECK(members_of(tar_member("pax", "13 comment=x\n", 'g') + tar_member("one", "1") + tar_end()) ==
        Files{{"one", "1"}});
}

TEST_CASE("sizes come from octal digits, from binary ones or from pax", "[tar]") {
  std::string binary = tar_header("b", 0);
  binary[124] = static_cast<char>(0x80);
  for (std::size_t i = 125; i < 135; ++i) binary[i] = '\0';
  binary[135] = 5;
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(binary[i]);
  char text[8];
  std::snprintf(text, sizeof text, "%06o", sum);
  binary.replace(148, 7, text, 7);
  const std::string padded = "12345" + std::string(507, '\0');
  CHECK(members_of(binary + padded + tar_end()) == Files{{"b", "12345"}});
  CHECK(members_of(pax("9 size=5\n") + tar_header("p", 0) + padded + tar_end()) ==
        Files{{"p", "12345"}});
}

TEST_CASE("folders, links and the rest are told apart", "[tar]") {
  const std::string archive = tar_member("d/", "", '5') + tar_member("old/", "") +
                              tar_member("l", "", '2') + tar_member("h", "", '1') +
                              tar_member("fifo", "", '6') + tar_member("f", "1") + tar_end();
  CHECK(members_of(archive) == Files{{"f", "1"}});
}

TEST_CASE("a tar that is cut off or damaged anywhere is an error that names the byte", "[tar]") {
  const std::string archive = tar_member("one", std::string(700, '1')) + pax("12 path=two\n") +
                              tar_member("2", "two") + tar_end();
  REQUIRE(members_of(archive).size() == 2);
  for (std::size_t bytes = 1; bytes < archive.size() - 1024; bytes += 61)
    CHECK_THROWS_WITH(members_of(archive.substr(0, bytes)),
                      Contains("a.tar: at byte") && Contains("cut off"));
  CHECK_THROWS_WITH(members_of(archive.substr(0, archive.size() - 1024)),
                    Contains("its end is not marked"));
  CHECK_THROWS_WITH(members_of(""), Contains("a.tar: is empty"));
  CHECK_THROWS_WITH(members_of(std::string(1024, 'x')), Contains("this is not a tar"));
  for (const std::size_t at : {1536 + 5, 1536 + 130, 1536 + 513}) {
    std::string damaged = archive;
    damaged[at] = '!';
    CHECK_THROWS_AS(members_of(damaged), InputError);
  }
  CHECK_THROWS_WITH(members_of(archive + archive), Contains("several tars in one"));
  CHECK_THROWS_WITH(members_of(pax("9 size=x\n") + tar_member("p", "") + tar_end()),
                    Contains("at byte 0: a pax header that is damaged"));
  CHECK_THROWS_WITH(members_of(pax("9 path=x\n") + tar_end()), Contains("announces a member"));
  CHECK_THROWS_WITH(members_of(tar_header("huge", 077777777777) + tar_end()),
                    Contains("huge: has 8589934591 bytes, but the file ends 1024 bytes after"));
}

TEST_CASE("an archive that unpacks to far more than its size, or than the disk has, is an error",
          "[tar]") {
  const Folder folder;
  const auto packed = folder.path / "a.tar.gz", to = folder.path / "a.tar";
  const gzFile file = gzopen(packed.c_str(), "wb9");
  const std::string zeros(1 << 20, '\0');
  gzwrite(file, zeros.data(), static_cast<unsigned>(zeros.size()));
  gzclose(file);
  const UnpackLimits all{.times = 5000, .always = 0, .spare = 0};
  UnpackLimits some = all;
  CHECK_NOTHROW(unpack(packed, Compression::gzip, to, all));
  std::filesystem::remove(to);
  some.times = 100;
  CHECK_THROWS_WITH(unpack(packed, Compression::gzip, to, some),
                    Contains("a.tar.gz: unpacks to more than") && Contains("100 times its size"));
  some.always = 1 << 20;
  CHECK_NOTHROW(unpack(packed, Compression::gzip, to, some));
  std::filesystem::remove(to);
  some.spare = std::uint64_t{1} << 62;
  CHECK_THROWS_WITH(unpack(packed, Compression::gzip, to, some),
                    Contains("a.tar.gz: unpacked, it does not fit next to"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}
