#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/worlds/tcp_communicator.hpp"
#include "lockstep/comm/worlds/tcp_control.hpp"
#include "tests/support/folder_fixture.hpp"

namespace lockstep::test {

/// What a rank reports, or the error that ended it.
using Story = std::function<std::string(comm::Control&)>;

inline std::string tell(const Story& story, comm::Control& control) {
  try {
    return story(control);
  } catch (const comm::MissingRanks& error) {
    return std::string("lost: ") + error.what();
  } catch (const comm::OutsideFault& error) {
    return std::string("outside: ") + error.what();
  } catch (const Error& error) {
    return error.what();
  }
}

/// Ranks that meet over TCP on this machine, each in a thread.
inline std::vector<std::string> ranks_tell(int world, const Story& story) {
  const Folder folder;
  cluster::MeetingPlace place;
  place.job = "test/8.0/0";
  place.file = folder.path / "private" / "meeting";
  place.ports = {0};
  place.node = "localhost";
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      cluster::RankInfo self;
      self.rank = rank;
      self.world = world;
      self.host = "localhost";
      self.authority = cluster::Authority::slurm;
      const auto control = comm::make_tcp_control(place, self, {60});
      return tell(story, *control);
    }));
  std::vector<std::string> told;
  for (auto& rank : ranks) told.push_back(rank.get());
  return told;
}

inline std::unique_ptr<comm::Communicator> connect(comm::Control& control, double deadline_s = 60,
                                                   const comm::FindAbsence& find_absence = {}) {
  return comm::make_tcp_communicator(
      control, {.host = "localhost", .deadline_s = deadline_s, .find_absence = find_absence});
}

}  // namespace lockstep::test
