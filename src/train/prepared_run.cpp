#include "lockstep/train/prepared_run.hpp"

#include <utility>

#include "lockstep/train/specs.hpp"
#include "train/decide/decide.hpp"
#include "train/files/resume.hpp"
#include "train/pipeline/pipeline.hpp"

namespace lockstep::train {
namespace {

DataChoices begun_with(const std::optional<ResumePoint>& resume) {
  if (!resume) return {};
  const config::Config before = written_config(*resume);
  return {before.data.element, before.data.task, before.data.clip};
}

}  // namespace

PreparedRun::PreparedRun(const RunSpec& spec, backend::Backend& backend,
                         comm::Communicator& communicator, comm::Control& control,
                         const std::optional<ResumePoint>& resume)
    : spec_(spec),
      backend_(backend),
      communicator_(communicator),
      data_(spec, control, begun_with(resume)) {
  decide_start(control, resume);
}

PreparedRun::PreparedRun(const RunSpec& spec, backend::Backend& backend,
                         comm::Communicator& communicator, comm::Control& control)
    : spec_(spec), backend_(backend), communicator_(communicator), data_(spec, control) {
  decide_start(control, std::nullopt);
}

PreparedRun::~PreparedRun() = default;

void PreparedRun::decide_start(comm::Control& control, const std::optional<ResumePoint>& resume) {
  const comm::Grid& grid = spec_.grid;
  if (grid.stages.count > 1)
    of_stage_ =
        communicator_.split(grid.sharers.colour(), grid.sharers.index, "the replicas of a stage");
  auto [decisions, two_level] = decide({.spec = spec_,
                                        .backend = backend_,
                                        .communicator = replicas(),
                                        .control = control,
                                        .resume = resume,
                                        .data = data_});
  decisions_ = std::make_unique<Decisions>(std::move(decisions));
  two_level_ = std::move(two_level);
  config_ = decisions_->in(spec_.config);
  trainer_spec_ = make_trainer_spec(config_, data_.input(), spec_.grid.replicas.count,
                                    spec_.grid.replicas.index);
  require_tiles(trainer_spec_.network, config_.tiles);
  trainer_spec_.program.loss.weights = data_.loss_weights();
  trainer_spec_.local = make_local_spec(config_, spec_.nodes, data_.steps_per_epoch());
  trainer_spec_.power_sgd = make_power_sgd_spec(config_, data_.steps_per_epoch());
  const nn::WorkSpec work = stage_work(trainer_spec_.program, backend_);
  pipeline_ = std::make_unique<Pipeline>(
      PipelineSpec{.order = config_.pipeline, .micro_batches = config_.accumulate, .work = work},
      trainer_spec_.network, communicator_, grid.stages);
  whole_ = std::make_unique<Whole>(
      Whole{*pipeline_, backend_, trainer_spec_.network, config_.precision, config_.seed});
  trainer_spec_.network = pipeline_->own(whole_->network);
  if (!pipeline_->is_whole()) trainer_spec_.program.whole = &whole_->network;
}

}  // namespace lockstep::train
