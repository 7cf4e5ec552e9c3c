// A communicator whose collectives are watched.
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "lockstep/comm/watched_communicator.hpp"
#include "tests/support/laws/verbs.hpp"
#include "tests/support/queues.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::comm;
using namespace lockstep::test;

/// Its clock counts the looks at it.
struct Seen final : CollectiveObserver {
  bool watches() const override { return on; }
  double clock_us() const override { return now_us += 1; }
  void ended(WatchedCollective one) override { all.push_back(std::move(one)); }
  std::string names() const {
    std::string text;
    for (const WatchedCollective& one : all) text += one.name + " by " + one.verb + "; ";
    return text;
  }
  bool on = true;
  mutable double now_us = 0;
  std::vector<WatchedCollective> all;
};

}  // namespace

TEST_CASE("watched collectives keep the laws of all verbs", "[watched][verbs]") {
  for (const auto law :
       {fault_of_groups_together, fault_of_messages, fault_of_nested_groups, fault_of_arguments}) {
    Queues queues;
    std::atomic<std::size_t> seen = 0;
    const auto told = threads_tell(queues, 3, true, [&](Communicator& below) {
      Seen watching;
      const auto watched = watch_collectives(below, watching);
      HostMemory memory;
      const std::string fault = law(*watched, memory);
      seen += watching.all.size();
      return fault;
    });
    CHECK(told == std::vector<std::string>(3));
    CHECK(seen > 0);
  }
}

TEST_CASE("each watched collective has its name, its size, and a time from its call to its end",
          "[watched]") {
  Queues queues;
  const auto told = threads_tell(queues, 2, true, [](Communicator& below) {
    Seen watching;
    const auto watched = watch_collectives(below, watching);
    std::vector<float> values(1000, 1), more(10, 1);
    std::vector<std::int32_t> whole(2);
    device::Stream& network = watched->network();
    watched->all_reduce(elements(values.data(), values.size()), Reduction::sum, "bucket 0",
                        network);
    watching.on = false;
    watched->all_reduce(elements(more.data(), more.size()), Reduction::sum, "unseen", network);
    watching.on = true;
    watched->all_gather(elements(whole.data(), whole.size()), "scales", network);
    const int other = 1 - watched->rank();
    watched->together([&] {
      watched->send(elements(values.data(), 500), other, "halo", network);
      watched->receive(elements(values.data() + 500, 500), other, "halo", network);
    });
    const auto end = network.record();
    const bool early = watching.all.size() == 4;  // the other rank may not have begun
    network.wait(*end);
    if (watching.names() !=
        "bucket 0 by AllReduce_Sum_f32; scales by AllGather; "
        "halo by SendRecv; halo by SendRecv; ")
      return watching.names();
    if (watching.all[0].bytes != 4000 || watching.all[1].bytes != 8) return std::string("bytes");
    double last_end = 0;
    for (const WatchedCollective& one : watching.all) {
      if (one.ended_us <= one.began_us || one.ended_us < last_end) return std::string("times");
      last_end = one.ended_us;
    }
    return std::string(early && values[0] != 2 ? "ended before its sum" : "");
  });
  CHECK(told == std::vector<std::string>(2));
}
