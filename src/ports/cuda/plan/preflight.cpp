#include "lockstep/backend/preflight.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"
#include "ports/cuda/plan/fusion.hpp"
#include "ports/cuda/plan/plan.hpp"

namespace lockstep::backend {

namespace {

using namespace cuda;

/// Asks for each pass of each convolution separately, so that the report lists every failure.
std::vector<backend::PreflightConv> ask_all(const backend::PreflightSpec& spec,
                                            ConvPlanner& planner) {
  const std::vector<Unit> units = lower(spec.network);
  const auto fusions = choose_fusions(spec.network, units, spec.program, planner);
  std::vector<backend::PreflightConv> answers;
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].kind != UnitKind::conv && units[u].kind != UnitKind::head) continue;
    for (const ConvRequest& request :
         conv_requests(spec.network, units[u], units[units[u].input], spec.program, fusions[u])) {
      backend::PreflightConv answer;
      answer.node = units[u].name;
      answer.what = describe(request);
      try {
        const ConvPlan& plan = planner.plan(request);
        answer.possible = true;
        answer.engine = plan.engine();
        answer.workspace = plan.workspace();
      } catch (const Error& error) {
        answer.engine = error.what();
      }
      answers.push_back(std::move(answer));
    }
  }
  return answers;
}

/// Which parts of the neighbouring batch norms each convolution computes.
std::vector<backend::PreflightFusion> fusions_of(const ProgramPlan& plan) {
  std::vector<backend::PreflightFusion> fusions;
  for (const PlannedUnit& p : plan.units) {
    if (p.unit.kind != UnitKind::conv) continue;
    backend::PreflightFusion fusion{p.unit.name, {}, {}};
    if (p.conv->fusion.normalised) fusion.applies = plan.units[p.unit.input].unit.name;
    if (p.conv->fusion.sums) fusion.sums_for = plan.units[p.unit.readers[0]].unit.name;
    fusions.push_back(std::move(fusion));
  }
  return fusions;
}

}  // namespace

backend::PreflightReport preflight(const backend::PreflightSpec& spec) {
  ConvPlanner planner(spec.gpu.cudnn);
  backend::PreflightReport report;
  report.convolutions = ask_all(spec, planner);
  report.possible = std::all_of(report.convolutions.begin(), report.convolutions.end(),
                                [](const backend::PreflightConv& conv) { return conv.possible; });
  if (!report.possible) return report;
  const ProgramPlan plan = plan_program(spec.network, spec.program, planner);
  report.steps = floors(spec.network, plan, spec.gpu.rates);
  report.memory = memory_of(spec.network, spec.program, plan);
  report.fits = fits_into(report.memory, spec.gpu.memory);
  if (spec.program.fuse_norms) report.fusions = fusions_of(plan);
  if (spec.search_batch)
    report.largest_batch = largest_batch(spec.network, spec.program, planner, spec.gpu.memory);
  return report;
}

}  // namespace lockstep::backend
