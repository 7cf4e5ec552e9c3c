#include "lockstep/base/files/io.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/owned.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string pattern(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 2654435761u >> 13);
  return text;
}

}  // namespace

TEST_CASE("what is written in full is read in full, though a pipe takes it in parts", "[io]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const Descriptor in(ends[0]);
  Descriptor out(ends[1]);
  const std::string sent = pattern(1 << 20);
  std::size_t wrote = 0;
  std::thread writer([&] {
    wrote = write_all(out.get(), sent.data(), sent.size());
    out.reset();
  });
  std::string got(sent.size() + 1, '\0');
  const std::size_t count = read_all(in.get(), got.data(), got.size());
  const int reason = errno;
  writer.join();
  CHECK(wrote == sent.size());
  CHECK(count == sent.size());
  CHECK(reason == 0);  // the pipe ended
  got.resize(count);
  CHECK((got == sent));
}

TEST_CASE("bytes are written and read where they belong, and an early end is not an error",
          "[io]") {
  const Folder folder;
  const auto path = folder.path / "file";
  write_text_atomically(path, "0123456789");
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  CHECK(write_all_at(file.get(), "abc", 3, 4) == 3);
  CHECK(read_text(path) == "0123abc789");
  std::string got(5, '-');
  CHECK(read_all_at(file.get(), got.data(), 5, 3) == 5);
  CHECK(got == "3abc7");
  errno = EIO;
  CHECK(read_all_at(file.get(), got.data(), 5, 8) == 2);
  CHECK(errno == 0);
  CHECK(got == "89bc7");
  CHECK(read_all_at(file.get(), got.data(), 0, 8) == 0);
}

TEST_CASE("a failed read or write gives its reason in errno", "[io]") {
  const Folder folder;
  const auto path = folder.path / "file";
  write_text_atomically(path, "0123456789");
  const Descriptor readable(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  CHECK(write_all(readable.get(), "abc", 3) == 0);
  CHECK(errno == EBADF);
  const Descriptor directory(::open(folder.path.c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  CHECK(read_all(directory.get(), &byte, 1) == 0);
  CHECK(errno == EISDIR);
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  CHECK(write_all(full.get(), "abc", 3) == 0);
  CHECK(errno == ENOSPC);
}

TEST_CASE("a full disk is the machine's fault, and a path without permission the user's", "[io]") {
  const auto may_be_corrected = [](int error_number) {
    try {
      fail_by_system("runs/a", error_number);
    } catch (const InputError&) {
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  CHECK_FALSE(may_be_corrected(ENOSPC));
  CHECK_FALSE(may_be_corrected(EIO));
  CHECK(may_be_corrected(EACCES));
}

TEST_CASE("a file's first line comes without its newline, and is empty where there is none",
          "[io]") {
  const Folder folder;
  const auto path = folder.path / "file";
  CHECK(first_line(path).empty());
  CHECK(first_line(folder.path).empty());
  for (const auto& [text, line] :
       {std::pair("one\ntwo\n", "one"), {"one", "one"}, {"\ntwo", ""}, {"", ""}}) {
    write_text_atomically(path, text);
    CHECK(first_line(path) == line);
  }
  CHECK(boot_id() == boot_id());
}
