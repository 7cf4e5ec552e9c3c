#include "lockstep/study/machine/nccl_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::study {
namespace {

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(by);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// What a line of the log says after its mark, in cells; without a mark, the line itself.
std::vector<std::string_view> cells_of(std::string_view line) {
  constexpr std::string_view mark = "NCCL INFO";
  if (const std::size_t at = line.find(mark); at != std::string_view::npos)
    line.remove_prefix(at + mark.size());
  std::vector<std::string_view> cells = split(line, '|');
  if (!cells.empty() && cells.back().empty()) cells.pop_back();
  return cells;
}

/// The names above the columns: of algorithms, each over several protocols.
struct Columns {
  std::vector<std::string_view> algorithms, protocols;  // one of each for each column

  /// Whether the line is one of headings, which it takes over.
  bool take(const std::vector<std::string_view>& cells) {
    if (cells.size() < 2) return false;
    if (cells[0] == "Latency/AlgBw" || cells[0] == "Latency/Bw") {
      algorithms.clear();
      protocols.clear();
      for (std::size_t i = 1; i < cells.size(); ++i) {
        const auto names = split(cells[i], '/');
        algorithms.push_back(names.front());
        protocols.push_back(names.back());
      }
      return true;
    }
    if (cells[0] == "Algorithm") {
      over_.assign(cells.begin() + 1, cells.end());
      return true;
    }
    if (cells[0] != "Protocol" || over_.empty()) return false;
    // The names repeat for each algorithm, and in the last block (from NCCL 2.23 on) once more.
    const auto again = std::find(cells.begin() + 2, cells.end(), cells[1]);
    const auto each = static_cast<std::size_t>(again - cells.begin()) - 1;
    if (cells.size() - 1 < each * over_.size()) return false;
    protocols.clear();
    algorithms.clear();
    for (std::size_t i = 0; i < each * over_.size(); ++i) {
      algorithms.push_back(over_[i / each]);
      protocols.push_back(cells[i + 1]);
    }
    return true;
  }

 private:
  std::vector<std::string_view> over_;
};

// NCCL's correction for trees of medium sizes, powers of two from 64 bytes on: facts of its
// src/graph/tuning.cc, for LL, LL128 and Simple.
constexpr std::array<std::array<double, 22>, 3> shares = {
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .5, .6, .6, .7, .7, .8, .9, .9, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .5, .5, .6, .6, .7, .8, .9}}};

}  // namespace

std::vector<NcclChoice> parse_nccl_table(std::string_view log) {
  std::vector<NcclChoice> choices;
  Columns columns;
  for (const std::string_view line : split(log, '\n')) {
    const auto cells = cells_of(line);
    if (columns.take(cells)) continue;
    if (columns.protocols.empty() || cells.size() != columns.protocols.size() + 1) continue;
    std::vector<NcclChoice> row;
    for (std::size_t i = 1; i < cells.size(); ++i) {
      const auto parts = split(cells[i], '/');
      const auto latency = real_number(parts.front()), bandwidth = real_number(parts.back());
      if (parts.size() != 2 || !latency || !bandwidth) break;
      row.push_back({std::string(cells[0]), std::string(columns.algorithms[i - 1]),
                     std::string(columns.protocols[i - 1]), *latency, *bandwidth});
    }
    if (row.size() + 1 != cells.size()) continue;
    // A later table, of another communicator, replaces what the earlier one said.
    std::erase_if(choices, [&row](const NcclChoice& old) {
      return std::any_of(row.begin(), row.end(), [&old](const NcclChoice& one) {
        return one.function == old.function && one.algorithm == old.algorithm;
      });
    });
    for (NcclChoice& one : row)
      if (one.gb_per_s > 0) choices.push_back(std::move(one));
  }
  return choices;
}

double tree_share(std::string_view protocol, double bytes) {
  const auto power = static_cast<std::size_t>(std::max(0.0, std::floor(std::log2(bytes / 64))));
  const std::size_t row = protocol == "LL" ? 0 : protocol == "LL128" ? 1 : 2;
  return power < shares[row].size() ? shares[row][power] : 1;
}

double seconds_of(const NcclChoice& choice, double bytes) {
  const double share = choice.algorithm == "Tree" ? tree_share(choice.protocol, bytes) : 1;
  return choice.latency_us * 1e-6 + bytes / (choice.gb_per_s * share * 1e9);
}

std::optional<NcclChoice> nccl_choice(const std::vector<NcclChoice>& choices,
                                      std::string_view function, double bytes) {
  std::optional<NcclChoice> best;
  for (const NcclChoice& one : choices)
    if (one.function == function && (!best || seconds_of(one, bytes) < seconds_of(*best, bytes)))
      best = one;
  return best;
}

}  // namespace lockstep::study
