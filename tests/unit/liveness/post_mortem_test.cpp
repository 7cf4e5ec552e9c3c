#include "lockstep/liveness/post_mortem.hpp"

#include <catch2/catch.hpp>

#include "lockstep/base/files/files.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::liveness;
using Catch::Matchers::Contains;
using test::names_in;

TEST_CASE("a post-mortem says where every rank was", "[liveness]") {
  Roster roster({"a", "b", "c"});
  roster.heard(0, {9, Phase::reduction, 3, 1000000, true, 5});
  roster.heard(1, {9, Phase::backward, 0, 0, false, 5});
  roster.pass(2.5);
  roster.broke(1);
  const std::string text = post_mortem(
      roster, {.reason = "1 of 3 ranks \"missing\"", .missing = {1}, .leave_out = {"b", "c"}}, 0);
  for (const char* part :
       {"\"reason\": \"1 of 3 ranks \\\"missing\\\"\"", "\"host\": \"b\"", "\"state\": \"missing\"",
        "\"phase\": \"backward\"", "\"bucket\": 3", "\"silent_s\": 2.5",
        "\n  \"leave_out\": \"b,c\",\n", "\"state\": \"not heard of\""})
    CHECK_THAT(text, Contains(part));
}

TEST_CASE("where ranks are gone or do not move, the state of their processes is how the run ended",
          "[liveness]") {
  const auto ending = [](Ending cause, const Trouble& trouble) {
    Roster roster({"a", "b"});
    for (const int rank : {0, 1}) roster.heard(rank, {});
    roster.seen(1, trouble);
    const std::string text = post_mortem(roster, {"reason", cause, {1}}, 0);
    CHECK_THAT(text, Contains("\"silent\": true"));
    const std::string begin = "\"ending\": \"";
    const std::size_t at = text.find(begin) + begin.size();
    return text.substr(at, text.find('"', at) - at);
  };
  const Trouble asleep{"it is in disk sleep", Ending::file_system},
      ended{"its process has ended", Ending::lost_rank};
  CHECK(ending(Ending::stuck, {}) == "stuck");
  CHECK(ending(Ending::stuck, {"it is stopped"}) == "stuck");
  CHECK(ending(Ending::stuck, asleep) == "file system");
  CHECK(ending(Ending::lost_rank, asleep) == "file system");
  CHECK(ending(Ending::unknown, ended) == "lost rank");
  CHECK(ending(Ending::disk_full, asleep) == "disk full");
}

TEST_CASE(
    "each rank leaves its own post-mortem, and rank 0's or a finished run gives the room back",
    "[liveness]") {
  const test::Folder folder;
  reserve_post_mortem(folder.path, 4);
  CHECK(std::filesystem::file_size(folder.path / ".post-mortem") == 8192 + 4 * 512);
  write_post_mortem(folder.path, 2, "{ }\n");
  CHECK(names_in(folder.path) ==
        std::vector<std::string>{".post-mortem", "post-mortem-rank2.json"});
  write_post_mortem(folder.path, 0, "{}\n");
  CHECK(names_in(folder.path) ==
        std::vector<std::string>{"post-mortem-rank2.json", "post-mortem.json"});
  CHECK(read_text(folder.path / "post-mortem.json") == "{}\n");
  reserve_post_mortem(folder.path, 4);
  release_post_mortem(folder.path);
  CHECK(names_in(folder.path).size() == 2);
}
