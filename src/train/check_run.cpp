#include <utility>
#include <vector>

#include "lockstep/backend/pace.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/model/model.hpp"
#include "lockstep/nn/partition.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/run.hpp"
#include "lockstep/train/run_data.hpp"
#include "lockstep/train/specs.hpp"
#include "train/files/first_weights.hpp"
#include "train/files/resume.hpp"

namespace lockstep::train {
namespace {

/// As if all ranks were on one node.
RunSpec spec_of(const config::Config& config, int ranks) {
  RunSpec spec;
  spec.config = config;
  spec.grid = comm::Grid(0, config::grid_shape(config, ranks));
  spec.nodes = comm::Nodes(std::vector<comm::RankPlace>(static_cast<std::size_t>(ranks)));
  return spec;
}

/// Returns what it resumes from.
std::optional<ResumePoint> check_folder(const config::Config& config, comm::Control& control) {
  const RunDirectory directory(config.out);
  require_makable(config.out);
  const std::optional<ResumePoint> resume = find_resume_point(config, directory, control);
  if (!resume)
    config.resume == "auto" ? directory.require_unfinished() : directory.require_unused();
  return resume;
}

}  // namespace

void check_run(config::Config config, int ranks,
               const std::function<bool(const std::string& path)>& shows) {
  comm::ActivityTracker activity;
  comm::LoneControl control(activity);
  const bool resumes = !config.resume.empty();
  std::optional<ResumePoint> resume;
  if (shows(config.out) && (!resumes || config.resume == "auto" || shows(config.resume)))
    resume = check_folder(config, control);
  if (!config.clock.profile.empty() && shows(config.clock.profile))
    backend::read_pace(config.clock.profile, config.clock.efficiency);
  if (!config.data.val.empty() && !shows(config.data.val)) config.data.val.clear();
  if (!shows(config.data.train)) return;
  const RunSpec spec = spec_of(config, ranks);
  const RunData data(spec, control);
  const TrainerSpec trainer = make_trainer_spec(config, data.input(), spec.grid.replicas.count);
  nn::balanced_cuts(trainer.network, config.stages);
  require_tiles(trainer.network, config.tiles);
  if (resume) {
    judge_resume(*resume, config,
                 {.backend = resume->header.backend,
                  .build = resume->header.build,
                  .world = ranks,
                  .replicas = spec.grid.replicas.count,
                  .data = data.input(),
                  .placement = resume->header.placement});
    model::require_tensors_of(trainer.network, resume->checkpoint);
  }
  if (!config.init.empty() && shows(config.init) && !resumes)
    read_first_weights(config, data.input(), trainer.network);
}

void check_inputs(const config::Config& config,
                  const std::function<bool(const std::string& path)>& shows) {
  for (const auto& [path, part] : {std::pair{config.data.train, PackedPart::training},
                                   std::pair{config.data.val, PackedPart::validation}})
    if (!path.empty() && shows(path)) require_files(path, part);
  if (!config.init.empty() && shows(config.init))
    model::load_any(choose_checkpoint(config.init), infer::describe_by_config,
                    backend::Part::weights, nullptr, config.head != config::HeadChoice::keep);
  if (!config.clock.profile.empty() && shows(config.clock.profile))
    backend::read_pace(config.clock.profile, config.clock.efficiency);
}

}  // namespace lockstep::train
