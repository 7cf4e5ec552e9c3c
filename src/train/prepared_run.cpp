#include "lockstep/train/prepared_run.hpp"

#include <utility>

#include "lockstep/train/specs.hpp"
#include "train/decide/decide.hpp"
#include "train/files/resume.hpp"

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
  auto [decisions, two_level] = decide({.spec = spec_,
                                        .backend = backend_,
                                        .communicator = communicator_,
                                        .control = control,
                                        .resume = resume,
                                        .data = data_});
  decisions_ = std::make_unique<Decisions>(std::move(decisions));
  two_level_ = std::move(two_level);
  config_ = decisions_->in(spec_.config);
  trainer_spec_ = make_trainer_spec(config_, data_.input(), spec_.grid.replicas.count,
                                    spec_.grid.replicas.index);
  trainer_spec_.program.loss.weights = data_.loss_weights();
  trainer_spec_.local = make_local_spec(config_, spec_.nodes, data_.steps_per_epoch());
  trainer_spec_.power_sgd = make_power_sgd_spec(config_, data_.steps_per_epoch());
}

}  // namespace lockstep::train
