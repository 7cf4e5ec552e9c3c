#include "study/fit/regression.hpp"

#include <limits>

#include "lockstep/base/statistics.hpp"

namespace lockstep::study {
namespace {

enum Number : std::size_t { c, a, alpha, wire };

/// The law at one observation, and its slopes.
struct Value {
  double step = 0, waiting = 0;  ///< waiting: exposed communication and jitter
  LawParameters step_slopes = {}, waiting_slopes = {};
};

Value value_at(const Observation& o, const Law& shape, const LawParameters& p) {
  const double n = static_cast<double>(shape.buckets), compute = p[c] * o.rows;
  const double bucket = p[alpha] * o.latency + p[wire] * o.wire;
  const double hidden = (n - 1) / n * shape.backward;
  const bool piled_up = n * bucket - hidden * compute > bucket;
  const double times = piled_up ? n : 1, hides = piled_up ? hidden : 0;
  Value value;
  value.waiting = times * bucket - hides * compute + o.jitter * compute;
  value.waiting_slopes = {o.rows * (o.jitter - hides), 0, times * o.latency, times * o.wire};
  value.step = compute + p[a] + value.waiting;
  value.step_slopes = value.waiting_slopes;
  value.step_slopes[c] += o.rows;
  value.step_slopes[a] = 1;
  return value;
}

/// Residuals: of log(time) for each observation, then of the exposed communication, as a share of
/// the time, for those that have it.
struct Residuals {
  const std::vector<Observation>& observations;
  const Law& shape;
  std::vector<const Observation*> exposed;

  Residuals(const std::vector<Observation>& all, const Law& of) : observations(all), shape(of) {
    for (const Observation& one : all)
      if (one.has_exposed) exposed.push_back(&one);
  }
  std::size_t count() const { return observations.size() + exposed.size(); }

  double operator()(std::size_t i, const LawParameters& p, LawParameters& slopes) const {
    const bool of_step = i < observations.size();
    const Observation& o = of_step ? observations[i] : *exposed[i - observations.size()];
    const Value value = value_at(o, shape, p);
    const double scale = o.weight / (of_step ? value.step : o.step_ms);
    for (std::size_t j = 0; j < most_parameters; ++j)
      slopes[j] = scale * (of_step ? value.step_slopes[j] : value.waiting_slopes[j]);
    return of_step ? o.weight * (std::log(value.step) - o.log_ms)
                   : scale * (value.waiting - o.exposed_ms);
  }
};

/// Akaike's criterion, corrected for few observations (Hurvich and Tsai 1989). Deviations below a
/// thousandth do not count.
double criterion(const Regression& fitted) {
  const double n = static_cast<double>(fitted.count), k = static_cast<double>(fitted.free + 1);
  if (n - k - 1 <= 0) return fitted.free == 2 ? std::numeric_limits<double>::max() : HUGE_VAL;
  return n * std::log(fitted.squares / n + 1e-6) + 2 * k + 2 * k * (k + 1) / (n - k - 1);
}

Regression regress_with(const Residuals& residuals, const LawParameters& start, bool has_alpha,
                        bool has_wire) {
  Problem problem{.count = residuals.count(), .parameters = most_parameters};
  problem.held = {false, false, !has_alpha, !has_wire};
  problem.high.fill(HUGE_VAL);
  LawParameters at = start;
  if (!has_alpha) at[alpha] = residuals.shape.alpha_ms;
  if (!has_wire) at[wire] = residuals.shape.wire_ms;
  const Solution solution = minimise(problem, at, residuals);
  Regression fitted{.has_alpha = has_alpha, .has_wire = has_wire, .squares = solution.squares};
  fitted.law = residuals.shape;
  fitted.law.c_ms = solution.parameters[c];
  fitted.law.a_ms = solution.parameters[a];
  fitted.law.alpha_ms = solution.parameters[alpha];
  fitted.law.wire_ms = solution.parameters[wire];
  fitted.count = residuals.count();
  fitted.free = 2u + has_alpha + has_wire;
  return fitted;
}

/// Where to begin: near the given law, with all terms alive.
LawParameters start_at(const std::vector<Observation>& observations, const Law& near) {
  double least = HUGE_VAL, per_row = HUGE_VAL;
  for (const Observation& one : observations) {
    least = std::min(least, one.step_ms);
    per_row = std::min(per_row, one.step_ms / one.rows);
  }
  const auto or_else = [](double value, double otherwise) { return value > 0 ? value : otherwise; };
  return {or_else(near.c_ms, 0.8 * per_row), or_else(near.a_ms, 0.1 * least),
          or_else(near.alpha_ms, 0.01 * least), or_else(near.wire_ms, 0.01 * least)};
}

}  // namespace

double Regression::scatter() const {
  return freedom() > 0 ? std::sqrt(squares / static_cast<double>(freedom())) : 0;
}

Observation observe(const Point& point, const Law& shape) {
  const double ranks = static_cast<double>(point.ranks);
  Observation observation;
  observation.rows = point.rows();
  observation.latency = std::log2(ranks);
  observation.wire = 2 * (ranks - 1) / (ranks * static_cast<double>(shape.buckets));
  observation.jitter = shape.jitter * expected_largest(ranks);
  observation.step_ms = point.step_ms;
  observation.log_ms = std::log(point.step_ms);
  observation.exposed_ms = point.exposed_ms;
  observation.has_exposed = point.has_exposed && point.ranks > 1;
  return observation;
}

Regression regress(const std::vector<Observation>& observations, const Law& shape,
                   const Law& near) {
  const Residuals residuals(observations, shape);
  const LawParameters start = start_at(observations, near);
  Regression best = regress_with(residuals, start, false, false);
  for (const auto& [has_alpha, has_wire] : {std::pair{true, false}, {false, true}, {true, true}}) {
    if (shape.measured_sums || residuals.count() < 6)
      break;  // the criterion does not allow a third number
    const Regression other = regress_with(residuals, start, has_alpha, has_wire);
    if (criterion(other) < criterion(best)) best = other;
  }
  return best;
}

double leverage(const std::vector<Observation>& observations, const Law& shape,
                const Regression& fitted, const Observation& at) {
  const LawParameters p = {fitted.law.c_ms, fitted.law.a_ms, fitted.law.alpha_ms,
                           fitted.law.wire_ms};
  const Residuals residuals(observations, shape);
  std::array<LawParameters, most_parameters> normal = {};
  std::size_t n = 0;
  std::array<std::size_t, most_parameters> free = {};
  for (std::size_t j = 0; j < most_parameters; ++j)
    if (p[j] > 0 && (j <= a || !shape.measured_sums)) free[n++] = j;
  for (std::size_t i = 0; i < residuals.count(); ++i) {
    LawParameters slopes = {};
    residuals(i, p, slopes);
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k <= j; ++k) normal[j][k] += slopes[free[j]] * slopes[free[k]];
  }
  const Value value = value_at(at, shape, p);
  LawParameters solved = {};
  for (std::size_t j = 0; j < n; ++j) solved[j] = value.step_slopes[free[j]] / value.step;
  const LawParameters slopes = solved;
  if (!solve(normal, solved, n)) return HUGE_VAL;
  double sum = 0;
  for (std::size_t j = 0; j < n; ++j) sum += slopes[j] * solved[j];
  return sum;
}

}  // namespace lockstep::study
