#include "lockstep/infer/members.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/infer/ladder.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/formats/formats.hpp"

namespace lockstep::infer {
namespace {

std::string preparation_text(const model::Preparation& preparation) {
  return fmt::format("resizes {} to {}", choice_name(preparation.fit), preparation.short_side);
}

void require_one_input(const MemberModel& a, const MemberModel& b, const data::DataSetInfo& named) {
  const data::Task task = a.model.about.input.task, other_task = b.model.about.input.task;
  require(task == other_task,
          fmt::format("{} says {} (data.task) and {} {}: they do not belong "
                      "together",
                      a.file, choice_name(task), b.file, choice_name(other_task)));
  const data::DataSetInfo first = input_of(a.model.about, &named);
  data::DataSetInfo second = input_of(b.model.about, &named);
  if (a.part != b.part) second.classes = first.classes;
  require_alike(first, a.file, second, b.file);
  const model::Preparation &one = a.model.about.preparation, &other = b.model.about.preparation;
  require(one == other,
          fmt::format("{} {} and {} {}: they prepare images in different ways, so they do not "
                      "belong together",
                      a.file, preparation_text(one), b.file, preparation_text(other)));
}

/// Of a cascade or a chain.
void require_classes(const MemberModel& member) {
  const data::Task task = member.model.about.input.task;
  require(
      task == data::Task::classes,
      fmt::format("{}: its network says {} (data.task), and only by a class can one model hand a "
                  "row on to another: FILE + FILE are the mean of both",
                  member.file, choice_name(task)));
}

bool is_chain(const std::vector<MemberModel>& members) { return members.back().part > 0; }

/// The names of the classes of one part; numbers where none of its files has them.
std::vector<std::string> classes_of(const std::vector<MemberModel>& members, std::size_t part) {
  const MemberModel* first = nullptr;
  for (const MemberModel& member : members) {
    if (member.part != part) continue;
    if (!member.model.about.input.classes.empty()) return member.model.about.input.classes;
    if (first == nullptr) first = &member;
  }
  return input_of(first->model.about, nullptr).classes;
}

/// Those of all arms.
std::vector<std::string> classes_of_chain(const std::vector<MemberModel>& members) {
  const std::vector<std::string> first = classes_of(members, 1);
  bool same = true;
  std::set<std::string> all;
  for (std::size_t part = 1; part <= members.back().part; ++part) {
    const std::vector<std::string> own = classes_of(members, part);
    same = same && own == first;
    all.insert(own.begin(), own.end());
  }
  return same ? first : std::vector<std::string>(all.begin(), all.end());
}

/// Which of `all` is this name; REQUIRES: one is.
std::size_t place_of(const std::string& name, const std::vector<std::string>& all) {
  return static_cast<std::size_t>(std::ranges::find(all, name) - all.begin());
}

/// By the class of the gate: which arm answers it.
std::vector<std::size_t> arms_of_classes(const ModelWords& words,
                                         const std::vector<std::string>& classes) {
  const std::string& gate = words.files.front();
  const std::size_t none = words.arms.size();
  const bool has_else = words.arms.back().classes.empty();
  std::vector<std::size_t> arm_of_class(classes.size(), none);
  for (std::size_t arm = 0; arm < words.arms.size(); ++arm)
    for (const std::string& name : words.arms[arm].classes) {
      const std::size_t k = place_of(name, classes);
      const std::string near = nearest(name, classes);
      require(k < classes.size(), fmt::format("{}: {} has no class of this name{}", name, gate,
                                              near.empty() ? "" : ", but '" + near + "'"));
      require(arm_of_class[k] == none, fmt::format("{}: has two models", name));
      arm_of_class[k] = arm;
    }
  const auto open = std::ranges::find(arm_of_class, none);
  require(!has_else || open != arm_of_class.end(),
          fmt::format("else: would have no effect: each class of {} has a model", gate));
  require(has_else || open == arm_of_class.end(),
          fmt::format("{}: its class '{}' has no model: add 'else' and one", gate,
                      open == arm_of_class.end()
                          ? ""
                          : classes[static_cast<std::size_t>(open - arm_of_class.begin())]));
  std::ranges::replace(arm_of_class, none, none - 1);
  return arm_of_class;
}

/// Of the model that they make; none where no file names them.
std::vector<std::string> classes_of_all(const std::vector<MemberModel>& members) {
  if (is_chain(members)) return classes_of_chain(members);
  for (const MemberModel& member : members)
    if (!member.model.about.input.classes.empty()) return member.model.about.input.classes;
  return {};
}

/// `classes`: of the model.
Arrangement arrangement_of(const ModelWords& words, const std::vector<MemberModel>& members,
                           const std::vector<std::string>& classes) {
  Arrangement how{.stages = words.stages};
  if (!is_chain(members)) return how;
  how.arm_of_class = arms_of_classes(words, classes_of(members, 0));
  for (std::size_t arm = 0; arm < words.arms.size(); ++arm) {
    GateArm& one = how.arms.emplace_back(GateArm{words.arms[arm].members, {}});
    for (const std::string& name : classes_of(members, arm + 1))
      one.outputs.push_back(place_of(name, classes));
  }
  return how;
}

std::unique_ptr<Classifier> make_member(const MemberModel& member, bool first_stage,
                                        backend::Backend& backend,
                                        const backend::ProgramSpec& program,
                                        backend::Parameters& parameters) {
  const nn::Network& network = member.model.about.network;
  if (first_stage) return std::make_unique<Inference>(backend, network, program, parameters);
  auto ladder = std::make_unique<Ladder>(backend, network, program, parameters);
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

MemberModels read_members(const ModelWords& words, const std::vector<std::string>& files,
                          const MemberReading& reading) {
  const std::vector<std::size_t> parts = words.parts();
  MemberModels read;
  std::vector<MemberModel>& members = read.all;
  for (std::size_t m = 0; m < files.size(); ++m) {
    MemberModel& member = members.emplace_back();
    member.part = parts[m];
    member.name = words.files[m];
    member.file = files[m];
    member.model = model::load_any(
        files[m], describe_by_config,
        reading.average ? backend::Part::average : backend::Part::weights, reading.rows);
    if (words.stages.size() > 1 || !words.arms.empty()) require_classes(member);
    member.config = settings_of(files[m], member.model);
    if (!reading.precision.empty()) config::set_key(member.config, "precision", reading.precision);
  }
  read.classes = classes_of_all(members);
  const data::DataSetInfo named = input_of(read, reading.rows);
  for (std::size_t m = 1; m < members.size(); ++m)
    require_one_input(*std::ranges::find(members, members[m].part, &MemberModel::part), members[m],
                      named);
  for (const MemberModel& member : members) require_one_input(members.front(), member, named);
  read.arrangement = arrangement_of(words, members, read.classes);
  return read;
}

data::DataSetInfo input_of(const MemberModels& members, const data::DataSetInfo* rows) {
  const model::Description& about = members.all.front().model.about;
  if (members.classes.empty()) return input_of(about, rows);
  data::DataSetInfo input = about.input;
  input.classes = members.classes;
  return input;
}

void require_normalised(const MemberModels& members) {
  for (const MemberModel& member : members.all)
    require(!member.model.about.input.mean.empty(),
            fmt::format("{}: does not hold the mean and deviation of what its network takes, which "
                        "lockstep's own files do",
                        member.file));
}

namespace {

/// Of the weights as the file has them: in which order a backend keeps them depends on the
/// processor.
std::string hash_of(const model::Model& model) {
  std::uint32_t hash = 0;
  for (const model::Weight& weight : model.weights)
    hash = crc32c(weight.values.data(), weight.values.size() * sizeof(float), hash);
  return fmt::format("{:08x}", hash);
}

}  // namespace

RunningModel run_members(MemberModels& members, backend::Backend& backend, std::size_t batch) {
  RunningModel running;
  std::vector<Member> made;
  backend::LossSpec loss;  // the first network's, as one alone is judged
  const Arrangement& how = members.arrangement;
  for (MemberModel& member : members.all)
    of_checkpoint(member.file, [&] {
      const model::Description& about = member.model.about;
      const backend::ProgramSpec program = make_program_spec(member.config, about.input, batch);
      backend::Parameters& parameters = *running.parameters.emplace_back(
          backend.make_parameters(about.network, program.precision, backend::Keeps::weights));
      model::put_weights(member.model, parameters);
      running.hash += hash_of(member.model);
      member.model.weights.clear();
      const bool first_stage = made.size() < how.stages.front().members;
      made.push_back({member.name, make_member(member, first_stage, backend, program, parameters),
                      ValueScale::of(about.input)});
      if (made.size() == 1) loss.task = program.loss.task, loss.delta = program.loss.delta;
    });
  const nn::Network& network = members.all.front().model.about.network;
  const std::size_t outputs = is_chain(members.all) ? members.classes.size() : network.classes;
  const std::size_t row_bytes =
      network.input.count() * data::bytes_of(members.all.front().model.about.input.element);
  running.model = arrange(
      std::move(made), how,
      {.stages = {}, .row_bytes = row_bytes, .outputs = outputs, .batch = batch, .loss = loss},
      backend.device());
  running.combined = dynamic_cast<Combined*>(running.model.get());
  return running;
}

}  // namespace lockstep::infer
