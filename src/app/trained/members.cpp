#include "app/trained/members.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include "app/trained/trained_model.hpp"
#include "lockstep/backend/inference/inference.hpp"
#include "lockstep/backend/inference/ladder.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

std::string preparation_text(const model::Preparation& preparation) {
  return fmt::format("resizes {} to {}", choice_name(preparation.fit), preparation.short_side);
}

void require_one_input(const MemberModel& a, const MemberModel& b, const data::DataSetInfo& named) {
  train::require_alike(input_of(a.model.about, &named), a.file, input_of(b.model.about, &named),
                       b.file);
  const model::Preparation &one = a.model.about.preparation, &other = b.model.about.preparation;
  require(one == other,
          fmt::format("{} {} and {} {}: they prepare images in different ways, so they do not "
                      "belong together",
                      a.file, preparation_text(one), b.file, preparation_text(other)));
}

std::unique_ptr<backend::Classifier> make_member(const MemberModel& member, bool first_stage,
                                                 backend::Backend& backend,
                                                 const backend::ProgramSpec& program,
                                                 backend::Parameters& parameters) {
  const nn::Network& network = member.model.about.network;
  if (first_stage)
    return std::make_unique<backend::Inference>(backend, network, program, parameters);
  auto ladder = std::make_unique<backend::Ladder>(backend, network, program, parameters);
  while (!ladder->prepare()) {
  }
  if (ladder->largest() < program.batch)
    log::info(
        fmt::format("{}: here a row's bits depend on its place in {} rows, so it computes {} "
                    "at a time",
                    member.file, program.batch, ladder->largest()));
  return ladder;
}

}  // namespace

std::vector<std::string> member_files(const ModelWords& words) {
  std::vector<std::string> files;
  for (const std::string& name : words.files) {
    files.push_back(train::choose_checkpoint(name));
    for (std::size_t other = 0; other + 1 < files.size(); ++other) {
      std::error_code none;
      require(
          !std::filesystem::equivalent(files[other], files.back(), none),
          fmt::format("{}: is a member twice, and {} is the same file", words.files[other], name));
    }
  }
  return files;
}

std::vector<MemberModel> read_members(const ModelWords& words,
                                      const std::vector<std::string>& files,
                                      const MemberReading& reading) {
  std::vector<MemberModel> members;
  for (std::size_t m = 0; m < files.size(); ++m) {
    MemberModel& member = members.emplace_back();
    member.name = words.files[m];
    member.file = files[m];
    member.model = model::load_any(
        files[m], train::describe_by_config,
        reading.average ? backend::Part::average : backend::Part::weights, reading.rows);
    member.config = settings_of(files[m], member.model);
    if (!reading.precision.empty()) config::set_key(member.config, "precision", reading.precision);
  }
  const data::DataSetInfo named = input_of(members, reading.rows);
  for (std::size_t m = 1; m < members.size(); ++m)
    require_one_input(members.front(), members[m], named);
  return members;
}

data::DataSetInfo input_of(const std::vector<MemberModel>& members, const data::DataSetInfo* rows) {
  for (const MemberModel& member : members)
    if (!member.model.about.input.classes.empty()) {
      data::DataSetInfo input = members.front().model.about.input;
      input.classes = member.model.about.input.classes;
      return input;
    }
  return input_of(members.front().model.about, rows);
}

void require_normalised(const std::vector<MemberModel>& members) {
  for (const MemberModel& member : members)
    require(!member.model.about.input.mean.empty(),
            fmt::format("{}: does not hold the mean and deviation of what its network takes, which "
                        "lockstep's own files do",
                        member.file));
}

RunningModel run_members(std::vector<MemberModel>& members,
                         const std::vector<backend::Stage>& stages, backend::Backend& backend,
                         std::size_t batch) {
  RunningModel running;
  std::vector<backend::Member> made;
  for (MemberModel& member : members)
    of_checkpoint(member.file, [&] {
      const model::Description& about = member.model.about;
      const backend::ProgramSpec program =
          train::make_program_spec(member.config, about.input, batch);
      backend::Parameters& parameters = *running.parameters.emplace_back(
          backend.make_parameters(about.network, program.precision));
      model::put_weights(member.model, parameters);
      member.model.weights.clear();
      running.hash += fmt::format("{:08x}", parameters.hash());
      const bool first_stage = made.size() < stages.front().members;
      made.push_back({member.name, make_member(member, first_stage, backend, program, parameters)});
    });
  const nn::Network& network = members.front().model.about.network;
  if (made.size() == 1) {
    running.model = std::move(made.front().network);
    return running;
  }
  auto combined =
      std::make_unique<backend::Combined>(std::move(made),
                                          backend::CombinedSpec{.stages = stages,
                                                                .row_bytes = network.input.count(),
                                                                .outputs = network.classes,
                                                                .batch = batch},
                                          backend.device());
  running.combined = combined.get();
  running.model = std::move(combined);
  return running;
}

std::string figures_text(const backend::MemberFigures& figures) {
  const auto rows = static_cast<double>(figures.rows);
  return fmt::format(
      "{}: {} rows in {:.2f} s{}", figures.name, figures.rows, figures.seconds,
      figures.rows > 0 ? fmt::format(", {:.0f} images/s", rows / figures.seconds) : "");
}

}  // namespace lockstep::app
