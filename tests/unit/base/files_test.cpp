#include "lockstep/base/files/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"
#include "tests/support/folder_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::Contains;

TEST_CASE("an atomically written file is read back as it was written", "[files]") {
  const Folder folder;
  const std::string text =
      "first\nsecond\n" + std::string(200000, 'x') + std::string(1, '\0') + "z";
  write_text_atomically(folder.path / "a.txt", "old");
  write_text_atomically(folder.path / "a.txt", text);
  CHECK(read_text(folder.path / "a.txt") == text);
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("a large file is written whole, wherever it is in memory and on whatever file system",
          "[files]") {
  const Folder folder;
  const fs::path in_memory = fmt::format("/dev/shm/lockstep-files-test-{}", ::getpid());
  constexpr std::size_t page = 4096, most = std::size_t{5} << 20;
  std::string text(most + 2 * page, ' ');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 24);
  std::size_t first = 0;  // of a page
  while (reinterpret_cast<std::uintptr_t>(&text[first]) % page != 0) ++first;
  for (const fs::path& path : {folder.path / "large", in_memory}) {
    for (const std::size_t shift : {0, 1}) {
      for (const std::size_t size : {most, most + 1, most - page + 17}) {
        const auto part = std::string_view(text).substr(first + shift, size);
        write_text_atomically(path, part);
        CHECK(read_text(path) == part);
      }
    }
    fs::remove(path);
  }
}

TEST_CASE("a failed write leaves the old file and nothing else", "[files]") {
  const Folder folder;
  const fs::path path = folder.path / "a.txt";
  write_text_atomically(path, "old");
  try {
    const PendingFile file(path);
    CHECK(fs::exists(file.temporary()));
    throw std::runtime_error("the disk is full");
  } catch (const std::runtime_error&) {
  }
  CHECK(read_text(path) == "old");
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("a file that is not committed never appears", "[files]") {
  const Folder folder;
  { const PendingFile file(folder.path / "a.txt"); }
  CHECK(names_in(folder.path).empty());
}

TEST_CASE("of many that publish a file at once one does, and it is never replaced", "[files]") {
  const Folder folder;
  const fs::path path = folder.path / "part";
  std::vector<int> published(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < published.size(); ++i)
    threads.emplace_back([&, i] { published[i] = publish_text(path, std::to_string(i)); });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(std::count(published.begin(), published.end(), 1) == 1);
  const auto winner = std::find(published.begin(), published.end(), 1) - published.begin();
  CHECK_FALSE(publish_text(path, "later"));
  CHECK(read_text(path) == std::to_string(winner));
  CHECK(names_in(folder.path).size() == 1);
}

TEST_CASE("a temporary file that a process of this number left is not in the way", "[files]") {
  const Folder folder;
  const fs::path path = folder.path / "a.txt";
  const std::string used = PendingFile(path).temporary().string();
  const std::size_t counter = used.rfind('-') + 1;
  for (unsigned next = 1; next < 9; ++next)
    write_file(used.substr(0, counter) + std::to_string(std::stoul(used.substr(counter)) + next),
               "left");
  write_text_atomically(path, "new");
  CHECK(read_text(path) == "new");
}

TEST_CASE("a text that fits is written where room was reserved for it", "[files]") {
  const Folder folder;
  const auto room = folder.path / ".room", path = folder.path / "words.json";
  reserve_room(room, 4096);
  REQUIRE(std::filesystem::file_size(room) == 4096);
  struct stat before {
  }, after{};
  REQUIRE(stat(room.c_str(), &before) == 0);
  write_into_room(room, path, "{ }\n");
  CHECK(read_text(path) == "{ }\n");
  REQUIRE(stat(path.c_str(), &after) == 0);
  CHECK(after.st_ino == before.st_ino);
  CHECK_FALSE(std::filesystem::exists(room));
  CHECK_THROWS_WITH(write_into_room(room, path, "x"), Contains("words.json"));
  CHECK(read_text(path) == "{ }\n");
}

TEST_CASE("a report follows links, leaves devices alone and never replaces an input file",
          "[files]") {
  const Folder folder;
  const fs::path real = folder.path / "real.json", link = folder.path / "link.json";
  write_report(real, "old");
  fs::create_symlink(real, link);
  require_report_fits(link);
  write_report(link, "new");
  CHECK(fs::is_symlink(link));
  CHECK(read_text(real) == "new");
  write_report("/dev/null", "gone");
  CHECK(fs::is_character_file("/dev/null"));
  CHECK_THROWS_WITH(require_report_fits(link, {folder.path / "else", real}),
                    Contains("link.json: it is an input file"));
  CHECK_THROWS_WITH(require_report_fits(real / "in" / "a.json"), Contains("real.json/in"));
  CHECK_THROWS_WITH(require_report_fits(folder.path), Contains("it is a directory"));
  CHECK(names_in(folder.path).size() == 2);
}

TEST_CASE("a file that cannot be read or made is named with the system's reason", "[files]") {
  const Folder folder;
  CHECK_THROWS_WITH(read_text(folder.path / "none"),
                    Contains("none") && Contains("No such file or directory"));
  CHECK_THROWS_WITH(read_text(folder.path), Contains("Is a directory"));
  CHECK_THROWS_WITH(write_text_atomically(folder.path / "no" / "a", "x"),
                    Contains("No such file or directory"));
  write_text_atomically(folder.path / "file", "x");
  CHECK_THROWS_WITH(make_directories(folder.path / "file" / "sub"), Contains("file/sub"));
  make_directories(folder.path / "deep" / "er");
  make_directories(folder.path / "deep" / "er");
  CHECK(fs::is_directory(folder.path / "deep" / "er"));
}

TEST_CASE("the folder of a report is made before the work that it describes", "[files]") {
  const Folder folder;
  require_report_fits(folder.path / "new" / "er" / "a.json");
  CHECK(names_in(folder.path / "new" / "er").empty());
  write_report(folder.path / "new" / "er" / "a.json", "x");
  CHECK(read_text(folder.path / "new" / "er" / "a.json") == "x");
}

TEST_CASE("bytes and durations are short and rounded right", "[files]") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(999) == "999 B");
  CHECK(human_bytes(1000) == "1.0 kB");
  CHECK(human_bytes(999960) == "1.0 MB");
  CHECK(human_bytes(12.34e6) == "12.3 MB");
  CHECK(human_bytes(5e12) == "5.0 TB");
  CHECK(human_seconds(0) == "0.0 s");
  CHECK(human_seconds(8.14) == "8.1 s");
  CHECK(human_seconds(59.94) == "59.9 s");
  CHECK(human_seconds(59.96) == "1:00");
  CHECK(human_seconds(125) == "2:05");
  CHECK(human_seconds(3599.6) == "1:00:00");
  CHECK(human_seconds(5025) == "1:23:45");
  CHECK(human_seconds(std::numeric_limits<double>::quiet_NaN()) == "unknown");
}

TEST_CASE("peak memory grows with what was touched", "[files]") {
  const std::size_t before = peak_resident_bytes();
  CHECK(before > 100'000);
  std::vector<char> touched(before + 50'000'000, 1);
  CHECK(touched.back() == 1);
  CHECK(peak_resident_bytes() >= before + 40'000'000);
}

TEST_CASE("a pipe or device in place of a file is an error that names it, and nothing waits",
          "[files]") {
  const Folder folder;
  const fs::path pipe = folder.path / "pipe.h5", file = folder.path / "file";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(read_text(pipe), Contains("pipe.h5: is a pipe, and not a regular file"));
  CHECK_THROWS_WITH(require_regular(pipe), Contains("pipe.h5: is a pipe"));
  CHECK_THROWS_WITH(h5::open_file(pipe), Contains("pipe.h5: is a pipe"));
  CHECK_THROWS_WITH(read_text("/dev/zero"), Contains("/dev/zero: is a device"));
  CHECK_NOTHROW(require_regular(folder.path / "not there"));
  CHECK_FALSE(open_regular(folder.path / "not there"));
  CHECK(open_regular(file, O_WRONLY | O_CREAT));
  CHECK(open_regular(file));
}
