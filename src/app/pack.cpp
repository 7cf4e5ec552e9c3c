#include <algorithm>

#include "app/cli/pack_options.hpp"
#include "app/commands.hpp"
#include "app/start/meeting_options.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/train/ending/stop_signal.hpp"

namespace lockstep::app {
namespace {

constexpr double shard_deadline_s = 600;  // for an image from a slow disk, or a shard to it

}  // namespace

Command add_pack(Arguments root) {
  Arguments app = root.add_command(
      "pack",
      "Make shards from class folders of JPEG, PNG, WebP or BMP images, lists of paths and labels, "
      "tars (WebDataset's, too), CIFAR-10/100 binary files, MNIST-style IDX files, or generated "
      "shapes. Under mpirun or srun all ranks share the work; resumes after an interruption");
  const auto options = std::make_shared<PackOptions>();
  add_pack_options(app, *options);
  add_meeting(app);
  return {app,
          [options](Launch& launch) {
            launch.start(shard_deadline_s);
            train::catch_stop_signals(false);
            const bool finished = pack::run_pack(
                *launch.control, [&] { return resolve_pack_options(*options); },
                train::stop_requested);
            return finished ? status_done : status_stopped;
          },
          [options](const Supposed& supposed) {
            const auto unseen = [&](const std::string& path) { return !supposed.shows(path); };
            if (!supposed.whole || std::ranges::any_of(options->sources, unseen) ||
                std::ranges::any_of(options->validation_sources, unseen))
              return;
            const pack::PackRequest request = resolve_pack_options(*options);
            if (!supposed.shows(request.out.string())) return;
            require_makable(request.out);
            pack::require_room(request.out, request.force);
          }};
}

}  // namespace lockstep::app
