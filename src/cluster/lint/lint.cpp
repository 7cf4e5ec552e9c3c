#include "lockstep/cluster/lint/lint.hpp"

#include <algorithm>

#include "cluster/lint/batch_script.hpp"

namespace lockstep::cluster {

std::vector<Finding> lint_batch_script(std::string_view text, const LintContext& context) {
  Findings findings;
  const BatchScript script = read_batch_script(text, findings);
  lint_resources(script, findings);
  lint_starts(script, findings);
  lint_ending(script, findings);
  lint_values(script, context, findings);
  lint_paths(script, context, findings);
  lint_flow(script, findings);
  std::vector<Finding> all = findings.take();
  std::ranges::stable_sort(all, {}, &Finding::line);
  return all;
}

}  // namespace lockstep::cluster
