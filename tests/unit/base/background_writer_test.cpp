#include "lockstep/base/files/background_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <catch2/catch.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/owned.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using Catch::Matchers::Contains;
using test::Folder;

namespace {

namespace fs = std::filesystem;
using Order = BackgroundWriter::Order;

Order order(std::uint64_t number, const fs::path& path, const std::string& text) {
  return {
      .name = "file " + std::to_string(number), .number = number, .paths = {path}, .bytes = [text] {
        return std::string_view(text);
      }};
}

/// An order that cannot end before `go_on` is set, like one whose file system does not answer.
Order held(std::uint64_t number, const fs::path& path, std::shared_future<void> go_on) {
  Order one = order(number, path, "held");
  one.before = [go_on = std::move(go_on)] { go_on.wait(); };
  return one;
}

std::vector<std::uint64_t> numbers(const std::vector<BackgroundWriter::Written>& written) {
  std::vector<std::uint64_t> all;
  for (const auto& one : written) all.push_back(one.number);
  return all;
}

/// What this process writes to stderr meanwhile.
class Said {
 public:
  explicit Said(const fs::path& path) : path_(path), before_(::dup(STDERR_FILENO)) {
    const Owned<int, ::close, -1> file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644));
    ::dup2(file.get(), STDERR_FILENO);
  }
  ~Said() { ::dup2(before_.get(), STDERR_FILENO); }
  std::string text() const { return read_text(path_); }

 private:
  fs::path path_;
  Owned<int, ::close, -1> before_;
};

}  // namespace

TEST_CASE("files are written in order, and are there once they count as written", "[writer]") {
  const Folder folder;
  const fs::path a = folder.path / "a", b = folder.path / "b";
  std::atomic<int> durable{0};
  BackgroundWriter writer;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    Order one = order(number, a, "text " + std::to_string(number));
    one.paths.push_back(b);
    one.durable = [&] { ++durable; };
    writer.add(std::move(one));
  }
  writer.wait();
  CHECK(durable == 3);
  CHECK(writer.unfinished() == 0);
  CHECK(read_text(a) == "text 3");
  CHECK(read_text(b) == "text 3");
  const auto written = writer.poll();
  CHECK(numbers(written) == std::vector<std::uint64_t>{1, 2, 3});
  for (const auto& one : written) CHECK((one.bytes == 6 && one.seconds >= 0));
  CHECK(writer.poll().empty());
  CHECK(test::names_in(folder.path) == std::vector<std::string>{"a", "b"});
}

TEST_CASE("the caller continues while a file is written, and can wait for a part", "[writer]") {
  const Folder folder;
  std::promise<void> first, second;
  BackgroundWriter writer;
  writer.add(held(1, folder.path / "a", first.get_future().share()));
  writer.add(held(2, folder.path / "b", second.get_future().share()));
  CHECK(writer.unfinished() == 2);
  CHECK(writer.poll().empty());
  first.set_value();
  writer.wait(1);
  CHECK(writer.unfinished() == 1);
  CHECK(fs::exists(folder.path / "a"));
  CHECK_FALSE(fs::exists(folder.path / "b"));
  second.set_value();
  writer.wait();
  CHECK(numbers(writer.poll()) == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("an order whose turn has not come can be dropped, and its memory is free", "[writer]") {
  const Folder folder;
  std::promise<void> go_on;
  BackgroundWriter writer;
  writer.add(held(1, folder.path / "a", go_on.get_future().share()));
  while (writer.seconds() == 0) std::this_thread::yield();
  const auto memory = std::make_shared<std::string>("waiting");
  Order waiting = order(2, folder.path / "b", "");
  waiting.bytes = [memory] { return std::string_view(*memory); };
  writer.add(std::move(waiting));
  waiting.bytes = nullptr;
  CHECK(memory.use_count() == 2);
  CHECK(writer.drop_waiting() == 1);
  CHECK(writer.drop_waiting() == 0);
  CHECK(memory.use_count() == 1);
  CHECK(writer.unfinished() == 1);
  go_on.set_value();
  writer.wait();
  CHECK(numbers(writer.poll()) == std::vector<std::uint64_t>{1});
  CHECK_FALSE(fs::exists(folder.path / "b"));
}

TEST_CASE("the memory of a file is free before it counts as written", "[writer]") {
  const Folder folder;
  const auto memory = std::make_shared<std::string>("bytes");
  BackgroundWriter writer;
  for (int i = 0; i < 50; ++i) {
    Order one = order(1, folder.path / "a", "");
    one.bytes = [memory] { return std::string_view(*memory); };
    writer.add(std::move(one));
    writer.wait();
    CHECK(memory.use_count() == 1);
  }
}

TEST_CASE("a file that cannot be written is thrown once, and nothing is written after it",
          "[writer]") {
  const Folder folder;
  const fs::path good = folder.path / "good";
  write_text_atomically(good, "the earlier one");
  std::promise<void> go_on;
  Said said(folder.path / "stderr");
  {
    BackgroundWriter writer;
    Order bad = order(1, folder.path / "none" / "a", "text");
    bad.before = [going = go_on.get_future().share()] { going.wait(); };
    writer.add(std::move(bad));
    writer.add(order(2, good, "a later one"));
    go_on.set_value();
    CHECK_THROWS_WITH(writer.wait(), Contains("cannot write " + (folder.path / "none/a").string() +
                                              ": No such file or directory"));
    CHECK(writer.unfinished() == 0);
    CHECK_NOTHROW(writer.wait());
    CHECK(writer.poll().empty());
    writer.add(order(3, good, "a later one"));
  }
  CHECK(read_text(good) == "the earlier one");
  CHECK(said.text().empty());
}

TEST_CASE("an error that no one asked for is said when the writer ends", "[writer]") {
  const Folder folder;
  Said said(folder.path / "stderr");
  {
    BackgroundWriter writer;
    writer.add(order(1, folder.path / "none" / "a", "text"));
  }
  CHECK_THAT(said.text(), Contains("error: cannot write") && Contains("none/a"));
}

TEST_CASE("what fails before a file is written leaves the folder as it was", "[writer]") {
  const Folder folder;
  BackgroundWriter writer;
  Order refused = order(1, folder.path / "a", "text");
  refused.before = [] { throw Error("a newer start"); };
  writer.add(std::move(refused));
  CHECK_THROWS_WITH(writer.wait(), "a newer start");
  CHECK(test::names_in(folder.path).empty());
}

TEST_CASE("a file system that does not answer is named once, and again when it does", "[writer]") {
  const Folder folder, words;
  std::promise<void> go_on;
  Said said(words.path / "stderr");
  BackgroundWriter writer({}, 0.05);
  writer.add(held(1, folder.path / "a", go_on.get_future().share()));
  while (writer.seconds() < 0.06) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (int i = 0; i < 3; ++i) writer.poll();
  const std::string question = ": does the file system of " + folder.path.string() + " answer?";
  CHECK_THAT(said.text(), Contains("file 1 has been written for ") && Contains(question));
  go_on.set_value();
  writer.wait();
  std::string text = said.text();
  CHECK_THAT(text, Contains("file 1 is on the disk, after "));
  text.replace(text.find(question), question.size(), "");
  CHECK_THAT(text, !Contains(question));
}

TEST_CASE("the thread of a writer is entered first, and gives way to others", "[writer]") {
  const Folder folder;
  std::atomic<bool> entered{false};
  int nice = 0;
  BackgroundWriter writer([&] { entered = true; });
  Order one = order(1, folder.path / "a", "text");
  one.before = [&] { nice = ::nice(0); };
  writer.add(std::move(one));
  writer.wait();
  CHECK(entered);
  CHECK(nice >= 10);
}
