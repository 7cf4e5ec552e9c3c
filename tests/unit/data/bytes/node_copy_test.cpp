#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "data/bytes/file_bytes.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "tests/unit/data/shard_fixture.hpp"

namespace fs = std::filesystem;
using namespace lockstep;
using namespace lockstep::data;
using namespace lockstep::test;
using Catch::Matchers::Contains;

namespace {

// Two shards of some MB, each of several pieces.
DataSetInfo large_info() {
  DataSetInfo info = small_info();
  info.height = info.width = 300;
  return info;
}

constexpr std::size_t row_count = 24;

void write_shards(const fs::path& folder) {
  write_shard(folder / "a.h5", large_info(), 0, 14);
  write_shard(folder / "b.h5", large_info(), 14, row_count - 14);
}

bool all_right(const DataSet& set, std::size_t first = 0, std::size_t count = row_count) {
  std::vector<std::uint8_t> image(set.info().row_bytes());
  for (std::size_t row = first; row < first + count; ++row) {
    set.read(row, image);
    if (image != pixels(large_info(), row)) return false;
  }
  return true;
}

const RowRange all_rows{0, row_count};

void wait_until_there(const DataSet& set) {
  for (int i = 0; i < 12000 && set.copied() < 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE(set.copied() == 1);
}

// The bytes that this process got from read calls.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  file >> name >> value;
  REQUIRE(name == "rchar:");
  return value;
}

}  // namespace

TEST_CASE("copied rows are the same, and come from the copy", "[copy]") {
  const Folder folder;
  fs::create_directories(folder.path / "set");
  write_shards(folder.path / "set");
  for (const bool mapped : {false, true}) {
    DataSet set(folder.path / "set");
    const NodeCopy copy = set.copy_to(folder.path / "copy", {&all_rows, 1});
    CHECK(copy.fits);
    CHECK(copy.bytes > row_count * large_info().row_bytes());
    CHECK((copy.there == copy.bytes) == mapped);  // the second time all is there
    if (mapped) set.map();
    CHECK(all_right(set));
    wait_until_there(set);
    // Changes to the original are not noticed now.
    const auto image = pixels(large_info(), 3);
    std::string bytes = read_text(folder.path / "set/a.h5");
    const auto at = bytes.find(std::string(image.begin(), image.begin() + 100));
    REQUIRE(at != std::string::npos);
    const auto time = fs::last_write_time(folder.path / "set/a.h5");
    const int file = ::open((folder.path / "set/a.h5").c_str(), O_WRONLY);
    REQUIRE(::pwrite(file, "?", 1, static_cast<off_t>(at)) == 1);
    CHECK(all_right(set));
    REQUIRE(::pwrite(file, &image[0], 1, static_cast<off_t>(at)) == 1);
    ::close(file);
    fs::last_write_time(folder.path / "set/a.h5", time);
  }
}

TEST_CASE("a node's processes together read each byte of the original once", "[copy]") {
  const Folder folder;
  fs::create_directories(folder.path / "set");
  write_shards(folder.path / "set");
  constexpr int processes = 3;
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  std::uint64_t expected = 0;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::uint64_t copied[2] = {0, 0};
      {
        DataSet set(folder.path / "set");
        const std::uint64_t before = bytes_read();
        const NodeCopy copy = set.copy_to(folder.path / "copy", {&all_rows, 1});
        bool right = true;
        for (std::size_t k = 0; k < row_count; ++k)
          right = right && all_right(set, (k * 7 + static_cast<std::size_t>(i) * 5) % row_count, 1);
        while (set.copied() < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        // The rows themselves were read once from the copy; everything else was read from the
        // original.
        copied[0] = bytes_read() - before - row_count * large_info().row_bytes();
        copied[1] = right ? copy.bytes : 0;
      }
      const bool told = ::write(pipe_ends[1], copied, sizeof copied) == sizeof copied;
      ::_exit(told ? 0 : 1);
    }
    children.push_back(child);
  }
  std::uint64_t copied = 0;
  for (const pid_t child : children) {
    std::uint64_t told[2] = {0, 0};
    REQUIRE(::read(pipe_ends[0], told, sizeof told) == sizeof told);
    copied += told[0];
    expected = told[1];
    CHECK(told[1] > 0);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  // In addition to the pieces, the processes read heads of tables and small system files.
  CHECK(copied >= expected);
  CHECK(copied < expected + processes * 100'000);
}

TEST_CASE("for a part of the rows, only their pieces are copied", "[copy]") {
  const Folder folder;
  write_shards(folder.path);
  DataSet set(folder.path);
  const RowRange some[] = {{1, 2}, {12, 4}};
  const NodeCopy copy = set.copy_to(folder.path / "copy", some);
  CHECK(copy.bytes < 6 * large_info().row_bytes() + 4 * 2 * (1 << 20));
  CHECK(copy.bytes >= 6 * large_info().row_bytes());
  wait_until_there(set);
  CHECK(all_right(set));  // the others, too: they are copied when asked for
}

TEST_CASE("what another process did not finish is copied again", "[copy]") {
  const Folder folder;
  fs::create_directories(folder.path / "set");
  write_shard(folder.path / "set/a.h5", large_info(), 0, row_count);
  { DataSet(folder.path / "set").copy_to(folder.path / "copy", {}); }
  fs::path table;
  for (const auto& entry : fs::recursive_directory_iterator(folder.path / "copy"))
    if (entry.path().extension() == ".pieces") table = entry.path();
  // All pieces belong to a process that is gone.
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  std::string bytes = read_text(table);
  for (std::size_t at = 4096; at < bytes.size(); at += 4)
    std::memcpy(&bytes[at], &gone, sizeof(std::uint32_t));
  const int file = ::open(table.c_str(), O_WRONLY);
  REQUIRE(::pwrite(file, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  ::close(file);
  DataSet set(folder.path / "set");
  set.copy_to(folder.path / "copy", {&all_rows, 1});
  CHECK(all_right(set));
}

TEST_CASE("a file that has changed since is copied again", "[copy]") {
  const Folder folder;
  fs::create_directories(folder.path / "set");
  const fs::path path = folder.path / "set/a.h5";
  write_shard(path, large_info(), 0, row_count);
  {
    DataSet set(path);
    set.copy_to(folder.path / "copy", {&all_rows, 1});
    wait_until_there(set);
  }
  fs::remove(path);
  write_shard(path, large_info(), 100, row_count);
  DataSet set(path);
  CHECK(set.copy_to(folder.path / "copy", {&all_rows, 1}).there == 0);
  std::vector<std::uint8_t> image(set.info().row_bytes());
  set.read(0, image);
  CHECK(image == pixels(large_info(), 100));
}

TEST_CASE("a table that is cut off while it is used ends no process: the rows are read in place",
          "[copy]") {
  const Folder folder;
  fs::create_directories(folder.path / "set");
  write_shard(folder.path / "set/a.h5", large_info(), 0, row_count);
  DataSet set(folder.path / "set");
  set.copy_to(folder.path / "copy", {&all_rows, 1});
  wait_until_there(set);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path / "copy"))
    if (entry.is_regular_file()) fs::resize_file(entry.path(), 100);
  CHECK(all_right(set));
  CHECK(set.copied() == 0);
}

TEST_CASE("a copy or a table that was cut before is an error that says what to remove", "[copy]") {
  for (const bool table : {false, true}) {
    const Folder folder;
    fs::create_directories(folder.path / "set");
    write_shard(folder.path / "set/a.h5", large_info(), 0, row_count);
    {
      DataSet set(folder.path / "set");
      set.copy_to(folder.path / "copy", {&all_rows, 1});
      wait_until_there(set);
    }
    for (const auto& entry : fs::recursive_directory_iterator(folder.path / "copy"))
      if (entry.is_regular_file() && (entry.path().extension() == ".pieces") == table)
        fs::resize_file(entry.path(), 100);
    DataSet set(folder.path / "set");
    CHECK_THROWS_WITH(set.copy_to(folder.path / "copy", {&all_rows, 1}),
                      Contains("was cut off") && Contains("remove it and "));
  }
}

TEST_CASE("a place where nothing can be copied to is an error", "[copy]") {
  const Folder folder;
  write_shards(folder.path);
  write_file(folder.path / "file", "not a folder");
  DataSet set(folder.path / "a.h5");
  const RowRange rows{0, 14};
  CHECK_THROWS_WITH(set.copy_to(folder.path / "file", {&rows, 1}),
                    Contains("data.stage: ") && Contains("file/lockstep-stage-"));
}

TEST_CASE("mapped rows are the same, and a file that became shorter is an error", "[copy]") {
  const Folder folder;
  write_shards(folder.path);
  DataSet set(folder.path);
  set.map();
  CHECK(all_right(set));
  std::vector<std::uint8_t> buffer;
  const auto seen = set.view(20, buffer);
  CHECK(buffer.empty());
  CHECK(std::vector<std::uint8_t>(seen.begin(), seen.end()) == pixels(large_info(), 20));
  fs::resize_file(folder.path / "b.h5", 2 << 20);
  std::vector<std::uint8_t> image(set.info().row_bytes());
  CHECK_THROWS_WITH(set.read(row_count - 1, image),
                    Contains("b.h5: row 9 cannot be read: the file has become shorter"));
  const auto wrong = pixels(large_info(), 3);
  const std::string bytes = read_text(folder.path / "a.h5");
  const int file = ::open((folder.path / "a.h5").c_str(), O_WRONLY);
  const auto at = bytes.find(std::string(wrong.begin(), wrong.begin() + 100));
  REQUIRE(::pwrite(file, "?!", 2, static_cast<off_t>(at)) == 2);
  ::close(file);
  CHECK_THROWS_WITH(set.view(3, buffer), Contains("a.h5: row 3 is damaged"));
}

namespace {

/// A process that waits until it is ended.
struct Sleeper {
  Sleeper() : process(::fork()) {
    if (process == 0)
      for (;;) ::pause();
  }
  ~Sleeper() {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
  /// When it began, in the system's ticks.
  std::uint32_t start() const {
    const std::string stat = first_line("/proc/" + std::to_string(process) + "/stat");
    std::istringstream fields(stat.substr(stat.rfind(')') + 1));
    std::string field;
    for (int i = 0; i < 20; ++i) fields >> field;
    return static_cast<std::uint32_t>(std::stoull(field));
  }
  pid_t process;
};

/// Writes into the copy's table that a process copies its first piece.
void claim_first_piece(const fs::path& copy, pid_t process, std::uint32_t start) {
  const std::uint64_t claim = std::uint64_t{static_cast<std::uint32_t>(process)} << 32 | start;
  std::fstream table(copy.string() + ".pieces", std::ios::in | std::ios::out | std::ios::binary);
  table.seekp(4096);
  table.write(reinterpret_cast<const char*>(&claim), sizeof claim);
  REQUIRE(table.flush());
}

}  // namespace

TEST_CASE("a piece whose process has stopped is waited for once; one of a dead process is copied",
          "[copy][waits]") {
  const Folder folder;
  const fs::path file = folder.path / "rows";
  write_file(file, std::string(3 << 20, 'x'));
  const Owned<int, ::close, -1> original = open_regular(file);
  const Sleeper sleeper;
  constexpr double patience_s = 1;
  CopiedFile copied(file, original.get(), folder.path / "copy", patience_s);
  claim_first_piece(copied.path(), sleeper.process, sleeper.start());
  const double began_s = now_s();
  constexpr int reads = 40;
  for (int i = 0; i < reads; ++i) CHECK_FALSE(copied.ensure(0, 100));
  const double took_s = now_s() - began_s;
  CHECK(took_s >= patience_s);
  CHECK(took_s < reads / 2 * patience_s);
  CHECK(copied.ensure(1 << 20, 2 << 20));
  CHECK(copied.problem().empty());

  // The number of a dead process is given to another one.
  claim_first_piece(copied.path(), sleeper.process, sleeper.start() + 1);
  CopiedFile next(file, original.get(), folder.path / "copy", 1e9);
  CHECK(next.ensure(0, 100));
}
