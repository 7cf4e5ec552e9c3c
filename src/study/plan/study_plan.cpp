#include "lockstep/study/plan/study_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/json_fields.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/walltime.hpp"
#include "lockstep/config/keys.hpp"

namespace lockstep::study {
namespace {

namespace fs = std::filesystem;

void require_sound(const PlanSpec& spec) {
  require(!spec.ranks.empty() && spec.ranks.front() > 0 && std::ranges::is_sorted(spec.ranks),
          "--ranks: needs numbers of ranks, the fewest first");
  require(spec.batch > 0 || spec.rows > 0,
          "give --batch for strong scaling, --batch-per-rank for weak scaling, or both");
  require(
      spec.batch == 0 || spec.batch >= spec.ranks.back(),
      fmt::format("--batch {} has fewer rows than the {} ranks", spec.batch, spec.ranks.back()));
  require(spec.synthetic || spec.real,
          "there is nothing to measure: give --data.train, or leave out --no-synthetic");
  require(spec.repetitions > 0 && spec.steps >= 2, "needs a repetition and two steps at least");
  require(spec.ranks_per_node > 0, "--ranks-per-node: needs at least one rank");
  require(cluster::read_time_limit(spec.time).has_value(),
          fmt::format("--time: \"{}\" is not a time limit: write minutes, H:MM:SS or D-HH:MM:SS",
                      spec.time));
  for (const std::size_t n : spec.ranks)
    require(n <= spec.ranks_per_node || n % spec.ranks_per_node == 0,
            fmt::format("{} ranks do not fill nodes of {} ranks", n, spec.ranks_per_node));
}

std::size_t nodes_of(const PlanSpec& spec, std::size_t ranks) {
  return (ranks + spec.ranks_per_node - 1) / spec.ranks_per_node;
}

/// An array's tasks hold all nodes; these lines submit it in parts that hold what they need.
std::string parts_of(const PlanSpec& spec, const std::string& script) {
  std::string lines;
  for (std::size_t first = 0; first < spec.ranks.size();) {
    std::size_t last = first;
    while (last + 1 < spec.ranks.size() &&
           nodes_of(spec, spec.ranks[last + 1]) == nodes_of(spec, spec.ranks[first]))
      ++last;
    lines += fmt::format("#   sbatch --nodes={} --array={}-{}%1 {}\n",
                         nodes_of(spec, spec.ranks[first]), first, last, script);
    first = last + 1;
  }
  return lines;
}

}  // namespace

std::string Measurement::name() const {
  return fmt::format("{}-{:05}-b{}-{}", synthetic ? "synthetic" : "real", ranks, batch, repetition);
}

std::map<std::string, std::string> Measurement::keys(const PlanSpec& plan,
                                                     const config::Config& training) const {
  std::map<std::string, std::string> keys{{"batch", std::to_string(batch)}};
  if (synthetic && plan.image) keys["data.size"] = std::to_string(*plan.image);
  if (synthetic && plan.classes) keys["data.classes"] = std::to_string(*plan.classes);
  if (ranks > 1) return keys;
  const config::Config alone = config::alone(training);
  for (const config::ConfigKey* key : config::changed_keys(training, alone))
    keys[key->name] = key->get(alone);
  return keys;
}

std::vector<Measurement> measurements_of(const PlanSpec& spec) {
  require_sound(spec);
  std::set<std::pair<std::size_t, std::size_t>> sizes;  // ranks and batch
  const std::size_t least = spec.ranks.front();
  for (const std::size_t n : spec.ranks) {
    if (spec.rows > 0) sizes.insert({n, n * spec.rows});
    if (spec.batch == 0) continue;
    sizes.insert({n, spec.batch});
    sizes.insert({least, std::max<std::size_t>(1, spec.batch / n) * least});
  }
  std::vector<Measurement> steps;
  for (std::size_t repetition = 1; repetition <= spec.repetitions; ++repetition)
    for (const bool synthetic : {true, false}) {
      if (!(synthetic ? spec.synthetic : spec.real)) continue;
      for (const auto& [ranks, batch] : sizes)
        steps.push_back({ranks, batch, repetition, synthetic});
    }
  return steps;
}

std::size_t configurations(const std::vector<Measurement>& steps) {
  std::set<std::pair<std::size_t, std::size_t>> sizes;
  for (const Measurement& step : steps) sizes.insert({step.ranks, step.batch});
  return sizes.size();
}

void check_plan(const fs::path& folder, const PlanSpec& spec, const config::Config& training) {
  measurements_of(spec);  // throws for a plan without sense
  require(folder.string().find('\n') == std::string::npos,
          "a study's folder is named in its batch script, so its name has no line break");
  require(training.resume.empty() && training.stop_after == 0 && training.stop_after_epoch == 0,
          "resume and stop-after: a study sets them itself");
  require(
      !fs::exists(folder),
      fmt::format("{}: exists already; lockstep scaling run continues a study", folder.string()));
  require_makable(folder);
}

void write_plan(const fs::path& folder, const PlanSpec& spec, const config::Config& training) {
  check_plan(folder, spec, training);
  make_directories(folder / "points");
  make_directories(folder / "logs");
  config::Config each = training;
  each.batch = each.batch_per_rank = 0;
  each.out.clear();
  each.data.val.clear();
  each.stop_after = spec.steps + spec.warm_up;
  each.epochs = 1 << 20;                           // enough for the steps, whatever the data
  each.optim.lr = std::min(each.optim.lr, 1e-3f);  // no batch may diverge
  each.optim.lr_for_batch = 0;
  // What begins later in a training is what is to be measured.
  each.optim.warmup_epochs = 0;
  each.sync.from_epoch = each.comm.power_sgd_from_epoch = 0;
  each.checkpoint.every_epochs = 0;
  each.checkpoint.every_steps = 0;
  write_text_atomically(folder / "train.toml", config::to_toml(each));
  write_text_atomically(folder / "study.sbatch", batch_script(folder, spec));
  write_text_atomically(folder / "study.json", fields_to_json(spec, true) + "\n");
}

PlanSpec read_plan(const fs::path& folder) {
  const fs::path file = folder / "study.json";
  require(fs::exists(file),
          fmt::format("{}: there is no study: lockstep scaling plan makes one", folder.string()));
  const auto json = parse_json<nlohmann::json>(read_text(file), file.string());
  const auto spec = read_fields<PlanSpec>(json, file.string());
  try {
    require_sound(spec);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", file.string(), error.what()));
  }
  return spec;
}

std::string batch_script(const std::filesystem::path& folder, const PlanSpec& spec) {
  const std::string place = shell_word(folder.string());
  const std::string script = shell_word((folder / "study.sbatch").string());
  std::string text =
      fmt::format("#!/bin/bash\n# A scaling study on {} ranks. Submit it again to continue it.\n",
                  join(spec.ranks, ", "));
  if (spec.array)
    text += "# Each task holds all nodes. In parts that hold only what they need:\n" +
            parts_of(spec, script);
  text += "#SBATCH --job-name=study\n";
  if (spec.array) text += fmt::format("#SBATCH --array=0-{}%1\n", spec.ranks.size() - 1);
  text += fmt::format("#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n",
                      nodes_of(spec, spec.ranks.back()), spec.ranks_per_node);
  if (spec.gpus_per_node > 0)
    text += fmt::format("#SBATCH --gpus-per-node={}\n", spec.gpus_per_node);
  text += fmt::format(
      "#SBATCH --cpus-per-task={}\n#SBATCH --mem=0\n#SBATCH --exclusive\n#SBATCH --time={}\n"
      "#SBATCH --output={}\n\n",
      spec.cpus_per_rank, spec.time, spec.array ? "%x-%A_%a.out" : "%x-%j.out");
  std::string only;
  if (spec.array) {
    text += fmt::format("ranks=({})\n", join(spec.ranks, " "));
    only = " --only-ranks \"${ranks[SLURM_ARRAY_TASK_ID]}\"";
  }
  return text + "\"${LOCKSTEP:-build/lockstep}\" scaling run " + place + only + "\n";
}

}  // namespace lockstep::study
