#include "lockstep/backend/backend.hpp"

namespace lockstep::backend {

Metrics& Metrics::operator+=(const Metrics& more) {
  loss += more.loss;
  rows += more.rows;
  top1 += more.top1;
  top5 += more.top5;
  return *this;
}

ReadFigures Backend::put_aside(std::vector<Program*> ran, const Parameters& parameters) {
  StepFigures figures;
  for (Program* program : ran) figures.metrics += program->take_metrics();
  figures.loss_scale = parameters.loss_scale();
  figures.clipped_norm = parameters.clipped_norm();
  figures.trust = parameters.trust_ratios();
  return [figures = std::move(figures)] { return figures; };
}

}  // namespace lockstep::backend
