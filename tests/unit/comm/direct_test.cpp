// Collectives over a transport that has nothing but its calls.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cctype>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/direct/direct.hpp"
#include "tests/support/laws/verbs.hpp"
#include "tests/support/queues.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::comm;
using namespace lockstep::test;

using Story = std::function<std::string(Communicator&)>;

std::vector<std::string> threads_tell(int world, bool copies, const Story& story,
                                      double deadline_s = 60) {
  Queues queues;
  return test::threads_tell(queues, world, copies, story, deadline_s);
}

void require_none(std::string (*law)(Communicator&, Memory&)) {
  for (const bool copies : {false, true})
    for (const int world : {1, 2, 3, 4, 6}) {
      INFO(world << " ranks, " << (copies ? "copied" : "not copied"));
      const auto told = threads_tell(world, copies, [&](Communicator& communicator) {
        HostMemory memory;
        return law(communicator, memory);
      });
      CHECK(told == std::vector<std::string>(static_cast<std::size_t>(world)));
    }
}

}  // namespace

TEST_CASE("over queues every verb is exact, for every type, group and length",
          "[direct][verbs][slow]") {
  require_none(fault_of_verbs);
}

TEST_CASE("over queues collectives of groups in flight together do not mix", "[direct][verbs]") {
  require_none(fault_of_groups_together);
}

TEST_CASE("over queues messages keep their order, and exchanges do not block", "[direct][verbs]") {
  require_none(fault_of_messages);
}

TEST_CASE("over queues messages of a channel wait for no other ones", "[direct][verbs][channels]") {
  require_none(fault_of_channels);
}

TEST_CASE("over queues sums of 16 bits add in float and round once", "[direct][verbs]") {
  require_none(fault_of_rounding);
}

TEST_CASE("over queues groups of groups know their ranks, and a group of one moves nothing",
          "[direct][verbs]") {
  require_none(fault_of_nested_groups);
}

TEST_CASE("over queues wrong arguments are errors, and leave the world usable", "[direct][verbs]") {
  require_none(fault_of_arguments);
}

TEST_CASE("an operation waits for the ranks whose messages have not come, and for no others",
          "[direct]") {
  for (const bool copies : {false, true}) {
    const auto told = threads_tell(
        6, copies,
        [](Communicator& world) {
          const int rank = world.rank();
          const auto group = world.split(rank % 2, -rank, "odd and even");
          std::vector<float> values(3000, 1);
          const Elements data = elements(values.data(), values.size());
          world.begin_step(12);
          if (rank == 1) group->broadcast(data, 2, "given", world.network());
          if (rank == 2) group->all_reduce(data, Reduction::sum, "sum", world.network());
          if (rank == 5) group->receive(data, 1, "pair", world.network());
          world.network().synchronize();
          return std::string("done");
        },
        0.3);
    // Ranks 5, 3 and 1 are 0, 1 and 2 in their group; ranks 4, 2 and 0 in theirs.
    CHECK(told[5] == "step 12, pair of group odd and even: rank 3 did not arrive within 0.3 s");
    CHECK(told[1] ==
          "step 12, given of group odd and even: ranks 3, 5 did not arrive within 0.3 s");
    CHECK(told[2] == "step 12, sum of group odd and even: ranks 0, 4 did not arrive within 0.3 s");
    for (const std::size_t rank : {0u, 3u, 4u}) CHECK(told[rank] == "done");
  }
}

TEST_CASE("a rank that only sends does not get ahead of those that receive", "[direct]") {
  for (const bool copies : {false, true})
    for (const bool broadcasts : {false, true}) {
      std::atomic<bool> looked = false;
      const auto told = threads_tell(2, copies, [&](Communicator& world) {
        std::vector<float> values(100003, static_cast<float>(world.rank()));
        const Elements data = elements(values.data(), values.size());
        while (world.rank() == 1 && !looked) std::this_thread::yield();
        if (broadcasts)
          world.broadcast(data, 0, "given", world.network());
        else if (world.rank() == 0)
          world.send(data, 1, "given", world.network());
        else
          world.receive(data, 0, "given", world.network());
        const auto end = world.network().record();
        for (int i = 0; i < 100; ++i) world.progress();
        const bool early = world.rank() == 0 && end->done();
        looked = true;
        world.network().synchronize();
        if (values != std::vector<float>(values.size(), 0)) return std::string("wrong");
        return std::string(early ? "early" : "in time");
      });
      CHECK(told == std::vector<std::string>(2, "in time"));
    }
}

TEST_CASE("operations on the same memory follow each other, whichever part of an exchange has it",
          "[direct]") {
  /// Writes its name when it starts, and in capitals when it ends.
  class Named final : public device::Pending {
   public:
    Named(std::string& log, char name) : log_(log), name_(name) {}
    bool advance() override {
      log_ += left_ > 0 ? name_ : static_cast<char>(std::toupper(name_));
      return left_-- == 0;
    }

   private:
    std::string& log_;
    char name_;
    int left_ = 1;
  };
  std::string log;
  std::array<std::int8_t, 8> memory{};
  HostNetwork network{ActivityTracker()};
  const auto put = [&](char name, std::size_t first, std::size_t count, bool writes) {
    network.put({&memory[first], count, ElementType::i8}, writes, false,
                [&log, name] { return std::make_unique<Named>(log, name); });
  };
  put('a', 4, 2, true);
  network.together([&] {
    put('b', 6, 2, true);
    put('c', 0, 2, true);
    put('d', 4, 1, false);  // waits for a
  });
  put('e', 0, 8, false);  // waits for the whole exchange
  put('f', 2, 2, true);   // waits for e
  put('g', 3, 1, false);  // waits for f
  while (!network.stream().advance()) continue;
  INFO(log);
  REQUIRE(log.size() == 14);
  const auto before = [&](char one, char other) { return log.find(one) < log.find(other); };
  CHECK((before('b', 'A') && before('c', 'A')));
  CHECK((before('A', 'd') && before('D', 'e') && before('B', 'e') && before('C', 'e')));
  CHECK((before('E', 'f') && before('F', 'g')));
}
