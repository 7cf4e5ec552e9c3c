#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/control_plane.hpp"
#include "lockstep/comm/worlds/tcp.hpp"
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

/// The plane of the rank that this thread is.
inline std::unique_ptr<comm::ControlPlane>& own_plane() {
  thread_local std::unique_ptr<comm::ControlPlane> plane;
  return plane;
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
      auto& plane = own_plane();
      plane = std::make_unique<comm::ControlPlane>(comm::meet_over_tcp(place, self, {60}), 60);
      plane->introduce();
      const std::string said = tell(story, plane->control());
      plane.reset();
      return said;
    }));
  std::vector<std::string> told;
  for (auto& rank : ranks) told.push_back(rank.get());
  return told;
}

/// Call it on the rank's thread.
inline std::unique_ptr<comm::Communicator> connect(double deadline_s = 60,
                                                   const comm::FindAbsence& find_absence = {}) {
  own_plane()->ask_first(find_absence);
  return own_plane()->connect(deadline_s);
}

}  // namespace lockstep::test
