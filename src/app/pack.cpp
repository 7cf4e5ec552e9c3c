#include "app/cli/pack_options.hpp"
#include "app/commands.hpp"

namespace lockstep::app {
namespace {

constexpr double shard_deadline_s = 600;  // for an image from a slow disk, or a shard to it

}  // namespace

Command add_pack(Arguments root) {
  Arguments app = root.add_command(
      "pack",
      "make shards from class folders of JPEG or PNG images, lists of paths and labels, tars "
      "(WebDataset's, too), CIFAR-10/100 binary files, MNIST-style IDX files, or generated shapes; "
      "under mpirun or srun all ranks share the work; resumes after an interruption");
  const auto options = std::make_shared<PackOptions>();
  add_pack_options(app, *options);
  return {app, [options](Launch& launch) {
            launch.start(shard_deadline_s);
            pack::run_pack(*launch.control, [&] { return resolve_pack_options(*options); });
            return 0;
          }};
}

}  // namespace lockstep::app
