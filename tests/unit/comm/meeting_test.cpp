#include "lockstep/comm/meeting.hpp"

#include <catch2/catch.hpp>

#include "lockstep/comm/agreement.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/observe/rank_times.hpp"

using namespace lockstep;
using namespace lockstep::comm;

namespace {

/// Rank 0 of many equal ranks. Counts the bytes that all of them send and get.
class Crowd final : public MeetingControl {
 public:
  explicit Crowd(int world) : world_(world) {}
  int rank() const override { return 0; }
  int world() const override { return world_; }
  std::size_t bytes = 0, calls = 0;

 private:
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    const std::string result = combine(Parts(static_cast<std::size_t>(world_), mine));
    bytes += static_cast<std::size_t>(world_) * (mine.size() + result.size());
    ++calls;
    return result;
  }
  int world_;
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
  Crowd control(512);
  control.gather("0123abcd", "all to all");
  CHECK(control.bytes > 512 * 512 * 8);
}

TEST_CASE("rank 0 has the texts of all ranks, and lists become one in the order of ranks",
          "[control]") {
  Crowd control(3);
  CHECK(control.gather_at_root("a", "test") == std::vector<std::string>{"a", "a", "a"});
  CHECK(join_records<std::string>(control, {"x", "y"}, "test") ==
        std::vector<std::string>{"x", "y", "x", "y", "x", "y"});
}
