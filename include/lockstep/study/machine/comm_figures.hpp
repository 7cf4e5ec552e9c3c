#pragma once

// What collectives cost between some ranks: measured figures, their lines, and comm.json.

#include <map>
#include <string>
#include <vector>

#include "lockstep/reduce/buckets.hpp"

namespace lockstep::study {

/// One verb at one size.
struct CommPoint {
  double bytes = 0, seconds = 0;
  double typical_s = 0;  ///< with what else the machine does at times; 0: as `seconds`

  static void fields(auto& self, auto&& visit) {
    visit("bytes", self.bytes);
    visit("seconds", self.seconds);
    visit.later("typical_s", self.typical_s);
  }
};

/// What the verb takes within [from_bytes, to_bytes].
struct CommRegime : reduce::LinkCost {
  double from_bytes = 0, to_bytes = 0;

  static void fields(auto& self, auto&& visit) {
    visit("from_bytes", self.from_bytes);
    visit("to_bytes", self.to_bytes);
    visit("alpha_s", self.latency_s);
    visit("bytes_per_s", self.bytes_per_s);
  }
};

/// From one size to the next, the verb became slower per byte than it had been: a protocol
/// that changes too early, a buffer that is too small.
struct CommCliff {
  double from_bytes = 0, to_bytes = 0;  ///< the two sizes
  double slower = 1;                    ///< how many times the bytes per second fell

  static void fields(auto& self, auto&& visit) {
    visit("from_bytes", self.from_bytes);
    visit("to_bytes", self.to_bytes);
    visit("slower", self.slower);
  }
};

/// One or two lines through the points, which are in rising order of size: two where they are at
/// least 1.6 times as near to the points, relative to each point, as one. At least two points.
/// Pure.
std::vector<CommRegime> fit_regimes(const std::vector<CommPoint>& points);

/// Sizes from which the bandwidth falls by more than a quarter to the next one. Pure.
std::vector<CommCliff> find_cliffs(const std::vector<CommPoint>& points);

/// bytes / seconds, times this, is the bus bandwidth as nccl-tests defines it: what a link must
/// carry, whatever the number of ranks. `verb`: "all-reduce", "reduce-scatter", "all-gather",
/// "broadcast" or "send". For the second and third, the bytes are those of all ranks' chunks.
double bus_factor(const std::string& verb, int ranks);

struct VerbFigures {
  std::vector<CommPoint> points;
  std::vector<CommRegime> regimes;
  std::vector<CommCliff> cliffs;

  static void fields(auto& self, auto&& visit) {
    visit("points", self.points);
    visit.later("regimes", self.regimes);
    visit.later("cliffs", self.cliffs);
  }
};

/// The typical time: between two measured sizes in proportion to the bytes; outside of them by the
/// nearest regime, as much longer as at the nearest size.
double seconds_of(const VerbFigures& figures, double bytes);

/// Fits lines to the points, whose typical times it completes, and looks for cliffs.
VerbFigures figures_of(std::vector<CommPoint> points);

struct CommFigures {
  int ranks = 0, nodes = 0;
  std::string transport;                     ///< "MPI", "TCP", "NCCL"; with "two-level" in front
  std::map<std::string, VerbFigures> verbs;  ///< and "all-reduce, queued": each of several at once
  std::string nccl;                          ///< NCCL's own table as text; empty without one

  static void fields(auto& self, auto&& visit) {
    visit("ranks", self.ranks);
    visit("nodes", self.nodes);
    visit("transport", self.transport);
    visit("verbs", self.verbs);
    visit.unless_empty("nccl", self.nccl);
  }
};

std::string to_json(const CommFigures& figures);
/// Reads what to_json() wrote. Throws InputError naming `origin` and what is wrong.
CommFigures parse_comm(const std::string& json, const std::string& origin);

}  // namespace lockstep::study
