#include <fmt/core.h>

#include <algorithm>

#include "lockstep/base/text/words.hpp"
#include "lockstep/study/plan/study_plan.hpp"

namespace lockstep::study {
namespace {

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

std::string batch_script(const std::filesystem::path& folder, const PlanSpec& spec) {
  const std::string place = shell_word(folder.string());
  const std::string script = shell_word((folder / "study.sbatch").string());
  std::string text = fmt::format(
      "#!/bin/bash\n# A scaling study on {} ranks. Submit it again to continue it.\n",
      join(std::vector<unsigned long long>(spec.ranks.begin(), spec.ranks.end()), ", "));
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
    text += fmt::format(
        "ranks=({})\n",
        join(std::vector<unsigned long long>(spec.ranks.begin(), spec.ranks.end()), " "));
    only = " --only-ranks \"${ranks[SLURM_ARRAY_TASK_ID]}\"";
  }
  return text + "\"${LOCKSTEP:-build/lockstep}\" scaling run " + place + only + "\n";
}

}  // namespace lockstep::study
