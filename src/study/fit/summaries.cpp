#include "lockstep/study/fit/summaries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <tuple>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/study/fit/points.hpp"
#include "study/fit/regression.hpp"

namespace lockstep::study {
namespace {

/// A curve of throughput over ranks, and its slopes.
using Curve = double (*)(double ranks, const LawParameters& p, LawParameters& slopes);

double amdahl_curve(double n, const LawParameters& p, LawParameters& slopes) {
  const double time = p[1] + (1 - p[1]) / n;
  slopes = {1 / time, -p[0] * (1 - 1 / n) / (time * time), 0, 0};
  return p[0] / time;
}

double gustafson_curve(double n, const LawParameters& p, LawParameters& slopes) {
  slopes = {n - p[1] * (n - 1), -p[0] * (n - 1), 0, 0};
  return p[0] * slopes[0];
}

double usl_curve(double n, const LawParameters& p, LawParameters& slopes) {
  const double cost = 1 + p[1] * (n - 1) + p[2] * n * (n - 1), value = p[0] * n / cost;
  slopes = {n / cost, -value * (n - 1) / cost, -value * n * (n - 1) / cost, 0};
  return value;
}

/// A fitted curve: the scale, then what it is about; with replicates of all.
struct Fitted {
  LawParameters parameters = {};
  std::vector<LawParameters> replicates;

  Interval interval_of(std::size_t which, double confidence) const {
    std::vector<double> values;
    for (const LawParameters& one : replicates) values.push_back(one[which]);
    return interval_around(parameters[which], std::move(values), confidence);
  }
};

/// In all curves slopes[0] is the curve for scale 1. `relative`: deviations count as shares.
struct CurveFit {
  Curve curve;
  std::size_t parameters;
  bool relative;
  double most = HUGE_VAL;  ///< of every parameter but the scale

  Solution solve(const std::vector<Load>& series, const LawParameters& start) const {
    Problem problem{.count = series.size(), .parameters = parameters};
    problem.high.fill(most);
    problem.high[0] = HUGE_VAL;
    return minimise(problem, start,
                    [&](std::size_t i, const LawParameters& p, LawParameters& slopes) {
                      const double scale = relative ? 1 / series[i].throughput : 1;
                      const double value = curve(series[i].ranks, p, slopes);
                      for (double& slope : slopes) slope *= scale;
                      return scale * (value - series[i].throughput);
                    });
  }

  Fitted fit(const std::vector<Load>& series, const FitSpec& spec) const {
    Fitted fitted;
    const Load& first = *std::ranges::min_element(series, {}, &Load::ranks);
    fitted.parameters = solve(series, {first.throughput / first.ranks, 0.01, 1e-5, 0}).parameters;
    std::vector<Load> smooth = series;
    std::vector<double> residuals;
    LawParameters ignored = {};
    for (Load& load : smooth) {
      load.throughput = curve(load.ranks, fitted.parameters, ignored);
      residuals.push_back((series[residuals.size()].throughput - load.throughput) /
                          (relative ? load.throughput : 1));
    }
    const std::size_t n = series.size(), freedom = n > parameters ? n - parameters : 1;
    const double scale = std::sqrt(static_cast<double>(n) / static_cast<double>(freedom));
    for (std::size_t r = 0; r < spec.replicates; ++r) {
      const Draws draws(spec.seed, r);
      std::vector<Load> disturbed = smooth;
      for (std::size_t i = 0; i < n; ++i) {
        const double sign = draws.below(2 * i + 1, 2) == 0 ? -1 : 1;
        disturbed[i].throughput +=
            sign * scale * residuals[draws.below(2 * i, n)] * (relative ? smooth[i].throughput : 1);
      }
      fitted.replicates.push_back(solve(disturbed, fitted.parameters).parameters);
    }
    return fitted;
  }
};

std::size_t sizes(const std::vector<Load>& series) {
  std::set<double> ranks;
  for (const Load& load : series) ranks.insert(load.ranks);
  return ranks.size();
}

std::optional<SerialFraction> serial_fraction(Curve curve, const std::vector<Load>& series,
                                              const FitSpec& spec) {
  if (sizes(series) < 3) return std::nullopt;
  const CurveFit kind{.curve = curve, .parameters = 2, .relative = true, .most = 1};
  return SerialFraction{kind.fit(series, spec).interval_of(1, spec.confidence), series.size()};
}

}  // namespace

std::optional<SerialFraction> amdahl(const std::vector<Load>& series, const FitSpec& spec) {
  return serial_fraction(amdahl_curve, series, spec);
}

std::optional<SerialFraction> gustafson(const std::vector<Load>& series, const FitSpec& spec) {
  return serial_fraction(gustafson_curve, series, spec);
}

std::optional<Usl> universal_scalability(const std::vector<Load>& series, const FitSpec& spec) {
  if (sizes(series) < 4) return std::nullopt;
  const CurveFit kind{.curve = usl_curve, .parameters = 3, .relative = false};
  const Fitted fitted = kind.fit(series, spec);
  return Usl{.alpha = fitted.interval_of(1, spec.confidence),
             .beta = fitted.interval_of(2, spec.confidence),
             .gamma = fitted.interval_of(0, spec.confidence),
             .points = series.size()};
}

std::optional<double> Usl::peak() const {
  if (!(beta.low > 0) || alpha.middle >= 1) return std::nullopt;
  return std::sqrt((1 - alpha.middle) / beta.middle);
}

std::vector<Load> Series::loads() const {
  std::vector<Load> list;
  for (const Point& point : points)
    list.push_back({static_cast<double>(point.ranks), point.images_per_s()});
  return list;
}

std::string Series::title() const {
  return strong ? fmt::format("strong scaling, batch {:g}", rows)
                : fmt::format("weak scaling, {:g} rows a rank", rows);
}

std::vector<Series> series_of(const std::vector<Point>& points) {
  std::map<std::pair<bool, double>, Series> found;
  for (const Point& point : points)
    for (const bool strong : {true, false}) {
      const double rows = strong ? static_cast<double>(point.batch) : point.rows();
      Series& series = found[{strong, rows}];
      series.strong = strong;
      series.rows = rows;
      series.points.push_back(point);
    }
  std::vector<Series> list;
  for (auto& [key, series] : found)
    if (sizes(series.loads()) >= 3) list.push_back(std::move(series));
  std::ranges::stable_sort(list, std::greater(),
                           [](const Series& series) { return series.points.size(); });
  return list;
}

std::vector<Point> fitted_points(const Fit& fit) {
  std::vector<Point> points;
  for (const Judged& one : fit.points)
    if (!one.outlier) points.push_back(one.point);
  return points;
}

std::vector<Series> series_of(const Fit& fit) { return series_of(fitted_points(fit)); }

namespace {

using Cells = std::vector<std::string>;

/// Rows of an epoch of ImageNet, for tables that have the time to train.
constexpr double imagenet_rows = 1281167;
/// A logged rate this many times what the time to train allows is wrong.
constexpr double impossible = 2;

/// The cells of one line; a cell in double quotes may have commas.
Cells cells_of(const std::string& line) {
  Cells cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r')
      cells.back() += c;
  }
  return cells;
}

/// A table's names, and where it is read.
struct Table {
  std::string file;
  Cells names = {};
  std::size_t line = 1;

  /// The first of these columns that is there.
  std::optional<std::size_t> column(std::initializer_list<const char*> any) const {
    for (const char* name : any)
      if (const auto at = std::ranges::find(names, name); at != names.end())
        return static_cast<std::size_t>(at - names.begin());
    return std::nullopt;
  }
  std::string text(const Cells& cells, std::initializer_list<const char*> any) const {
    const std::optional<std::size_t> at = column(any);
    return at ? cells[*at] : std::string();
  }
  /// Empty: no such column, or an empty cell.
  std::optional<double> number(const Cells& cells, std::initializer_list<const char*> any) const {
    const std::string cell = text(cells, any);
    if (cell.empty()) return std::nullopt;
    const double value = real_number(cell).value_or(-1);
    require(std::isfinite(value) && value >= 0,
            fmt::format("{}:{}: column {}: '{}' is not a number >= 0", file, line,
                        names[*column(any)], cell));
    return value;
  }
};

/// "A100-SXM4-80GB (400W)": a power limit does not make another machine.
std::string without_remark(const std::string& machine) {
  return machine.substr(0, machine.find(" ("));
}

/// Why this rate cannot be right; empty: it can.
std::string contradiction(const Table& table, const Cells& cells, double images_per_s) {
  const auto minutes = table.number(cells, {"ttt_min"}), epochs = table.number(cells, {"epochs"});
  if (!minutes || !epochs || *minutes <= 0 || *epochs <= 0) return "";
  const double trained = *epochs * imagenet_rows / (60 * *minutes);
  if (images_per_s < impossible * trained) return "";
  return fmt::format("its {:.0f} images/s contradict its time to train, which allows {:.0f}",
                     images_per_s, trained);
}

void read_row(const Table& table, const Cells& cells, const ReadSpec& spec, const std::regex& match,
              std::set<std::tuple<std::string, std::size_t, std::size_t, double>>& seen,
              Samples& all) {
  const std::string round = table.text(cells, {"round"});
  const std::string entry = table.text(cells, {"name", "submission", "run"});
  const std::string label = round.empty() ? entry : round + " " + entry;
  if (!spec.match.empty() && !std::regex_search(label, match)) return;
  const auto ranks = table.number(cells, {"ranks", "devices", "accel"});
  const auto batch = table.number(cells, {"batch", "global_batch"});
  auto step_ms = table.number(cells, {"step_ms"});
  const auto rate = table.number(cells, {"images_per_s", "img_s"});
  if (!step_ms && rate && *rate > 0 && batch) step_ms = 1e3 * *batch / *rate;
  if (!ranks || !batch || !step_ms || *ranks < 1 || *batch < 1 || *step_ms <= 0) return;
  Sample sample;
  sample.name = fmt::format("{}:{} {}", table.file, table.line, label);
  sample.ranks = static_cast<std::size_t>(*ranks);
  sample.batch = static_cast<std::size_t>(*batch);
  sample.nodes = static_cast<std::size_t>(table.number(cells, {"nodes"}).value_or(0));
  sample.machine = without_remark(table.text(cells, {"machine", "model"}));
  sample.network = table.text(cells, {"network"});
  sample.precision = table.text(cells, {"precision"});
  sample.step_ms = *step_ms;
  // MLPerf's later rounds repeat entries of earlier ones, which are not further measurements.
  if (!round.empty() && !seen.insert({entry, sample.ranks, sample.batch, *step_ms}).second) return;
  if (const std::string why = contradiction(table, cells, sample.images_per_s()); !why.empty())
    all.rejected.push_back({sample.name, why});
  else
    all.good.push_back(std::move(sample));
}

}  // namespace

Samples read_table(const std::filesystem::path& file, const ReadSpec& spec) {
  std::istringstream text(read_text(file));
  std::string line;
  Table table{.file = file.string()};
  require(static_cast<bool>(std::getline(text, line)), fmt::format("{}: is empty", table.file));
  table.names = cells_of(line);
  const auto needs = [&](std::initializer_list<const char*> any, const char* what) {
    require(table.column(any).has_value(), fmt::format("{}:1: has no column {}", table.file, what));
  };
  needs({"ranks", "devices", "accel"}, "ranks (or devices, accel)");
  needs({"batch", "global_batch"}, "batch (or global_batch)");
  needs({"step_ms", "images_per_s", "img_s"}, "step_ms, images_per_s or img_s");
  const std::regex match(spec.match);
  std::set<std::tuple<std::string, std::size_t, std::size_t, double>> seen;
  Samples all;
  while (std::getline(text, line)) {
    ++table.line;
    if (line.empty() || line == "\r") continue;
    const Cells cells = cells_of(line);
    require(cells.size() == table.names.size(),
            fmt::format("{}:{}: has {} cells, its first line has {}", table.file, table.line,
                        cells.size(), table.names.size()));
    read_row(table, cells, spec, match, seen, all);
  }
  return all;
}

}  // namespace lockstep::study
