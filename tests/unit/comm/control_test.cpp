#include "lockstep/comm/control.hpp"

#include <catch2/catch.hpp>

#include "lockstep/comm/agreement.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/observe/rank_times.hpp"

using namespace lockstep;
using namespace lockstep::comm;

namespace {

/// Rank 0 of many ranks, which say the same as it, or what is given. Counts the bytes that all of
/// them send and get.
class Crowd final : public Control {
 public:
  explicit Crowd(int world, std::function<std::string(int rank)> text = {})
      : world_(world), text_(std::move(text)) {}
  int rank() const override { return 0; }
  int world() const override { return world_; }
  std::size_t bytes = 0, calls = 0;

 private:
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    Parts parts(static_cast<std::size_t>(world_), mine);
    for (int rank = 0; text_ && rank < world_; ++rank)
      parts[static_cast<std::size_t>(rank)] = text_(rank);
    const std::string result = combine(parts);
    bytes += static_cast<std::size_t>(world_) * (mine.size() + result.size());
    ++calls;
    return result;
  }
  int world_;
  std::function<std::string(int)> text_;
};

/// The bytes of what a run's loop does through Control in 100 steps.
std::size_t bytes_of_steps(int world) {
  Crowd control(world);
  const Nodes nodes(std::vector<RankPlace>(static_cast<std::size_t>(world), {"m1", "node1"}));
  observe::RankTimes times(nodes, "data");
  for (int step = 0; step < 100; ++step) {
    control.sum({2.5, 8, 3, 0, 0}, "step");
    control.any(false, "evaluation batch");
    times.add({}, control);
  }
  disagreement(control, "0123abcd", "weight audit");
  join_records<std::string>(control, {}, "bad rows");
  return control.bytes;
}

}  // namespace

TEST_CASE("what ranks tell each other in a step grows with their number, not with its square",
          "[control]") {
  const std::size_t few = bytes_of_steps(8), many = bytes_of_steps(512);
  INFO(few << " bytes on 8 ranks, " << many << " on 512");
  CHECK(many <= few * (512 / 8));
}

TEST_CASE("a text that several ranks share is sent once to each rank, and each gets its own back",
          "[control]") {
  const auto bytes_of = [](int world, const std::function<std::string(int)>& text) {
    Crowd control(world, text);
    const auto all = control.gather(text(0), "all to all");
    REQUIRE(all.size() == static_cast<std::size_t>(world));
    for (int rank = 0; rank < world; ++rank)
      CHECK(all[static_cast<std::size_t>(rank)] == text(rank));
    return control.bytes / static_cast<std::size_t>(world);
  };
  const std::string machine(60, 'm');
  const std::size_t once = machine.size() + 2 * sizeof(std::uint64_t);
  CHECK(bytes_of(512, [&](int) { return machine; }) <= machine.size() + once + 16);
  const auto of_node = [&](int rank) { return machine + std::to_string(100 + rank / 8); };
  CHECK(bytes_of(512, of_node) <= 64 * (once + 3) + 512 * sizeof(std::uint32_t) + 100);
  const auto own = [&](int rank) { return machine + std::to_string(100 + rank); };
  CHECK(bytes_of(512, own) > 512 * machine.size());
  CHECK(bytes_of(1, own) > 0);
}

TEST_CASE("rank 0 has the texts of all ranks, and lists become one in the order of ranks",
          "[control]") {
  Crowd control(3);
  CHECK(control.gather_at_root("a", "test") == std::vector<std::string>{"a", "a", "a"});
  CHECK(join_records<std::string>(control, {"x", "y"}, "test") ==
        std::vector<std::string>{"x", "y", "x", "y", "x", "y"});
}
