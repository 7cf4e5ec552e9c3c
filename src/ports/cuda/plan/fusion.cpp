#include "ports/cuda/plan/fusion.hpp"

namespace lockstep::cuda {

namespace {

/// True when nothing else needs this unit's value, so that its only reader can compute it as it
/// reads.
bool applied_by_its_reader(const Unit& norm) {
  return norm.kind == UnitKind::norm && norm.relu && !norm.skip && norm.readers.size() == 1;
}

}  // namespace

std::vector<ConvFusion> fuse_norms(const std::vector<Unit>& units, const CanFuse& possible) {
  std::vector<ConvFusion> fusions(units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].kind != UnitKind::conv) continue;
    // No engine can normalise its input without making the sums of its output.
    const ConvFusion all{applied_by_its_reader(units[units[u].input]), true}, sums{false, true};
    for (const ConvFusion& fusion : {all, sums}) {
      if (!possible(u, fusion)) continue;
      fusions[u] = fusion;
      break;
    }
  }
  return fusions;
}

}  // namespace lockstep::cuda
