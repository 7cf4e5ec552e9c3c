#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <tuple>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/study/fit/points.hpp"

namespace lockstep::study {
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
