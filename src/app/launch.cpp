#include "commands.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::app {

void Launch::start(double deadline_s) {
  const sys::EnvLookup env = sys::process_environment();
  const sys::RankInfo before = sys::identify(env, std::nullopt);
  if (const auto warning = sys::launch_warning(env); warning && before.rank == 0)
    log::warn(*warning);
  world = std::make_unique<comm::World>(argc, argv);
  const comm::WorldFacts& facts = world->facts();
  rank = sys::identify(env,
                       sys::MpiWorld{facts.rank, facts.world, facts.local_rank, facts.local_size});
  log::set_rank(rank.rank, rank.world);
  control = world->make_control(deadline_s);
}

}  // namespace lockstep::app
