#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/observe/records.hpp"

/// Questions about many runs: how the time of a step depends on rows and ranks, what it will be
/// elsewhere, and what that costs. This header: the measurements, from the files that have them.
namespace lockstep::study {

/// One run: one measurement of one configuration.
struct Sample {
  std::string name;  ///< its folder or file, or its row: "data.csv:12 NVIDIA/eos"
  /// What must be the same in all measurements of one fit; empty: unknown.
  std::string network, precision, machine;
  std::size_t ranks = 0, nodes = 0;  ///< nodes: 0 when unknown
  std::size_t batch = 0;             ///< rows of a step, over all ranks
  std::size_t micro_batches = 1;     ///< of a rank's step
  bool synthetic = false;            ///< no data were read
  std::size_t steps = 0;             ///< that were measured
  double step_ms = 0;                ///< their median
  double spread_ms = 0;              ///< their robust standard deviation; 0: unknown
  /// Medians of the parts of a step. A benchmark on synthetic rows has no data and other parts.
  std::optional<observe::StepTimes> parts;
  double mean_exposed_ms = 0;        ///< of a run: exposed communication, on average
  std::size_t epoch_rows = 0;        ///< of the training set; 0: unknown
  std::size_t image = 0;             ///< the side of the network's input; 0: unknown
  std::size_t gradient_numbers = 0;  ///< that are summed in a step; 0: unknown
  std::size_t buckets = 0;           ///< parts in which they are summed; 0: unknown

  double rows() const { return static_cast<double>(batch) / static_cast<double>(ranks); }
  double images_per_s() const { return 1e3 * static_cast<double>(batch) / step_ms; }
};

/// A measurement that no fit may use, and why.
struct Rejected {
  std::string name, reason;
};

struct Samples {
  std::vector<Sample> good;
  std::vector<Rejected> rejected;
};

/// What of the files is read.
struct ReadSpec {
  std::string match;   ///< a regular expression for names; empty: all
  bool mixed = false;  ///< different networks, precisions and machines are not an error
};

/// Reads a run's folder (metrics.jsonl and binding.json), without its first steps. Throws
/// InputError naming the file when it cannot be read, has too few steps, or misses ranks.
Sample read_run(const std::filesystem::path& folder);

/// Reads what `lockstep bench train --json` wrote. Throws InputError as above.
Sample read_bench(const std::filesystem::path& file);

/// Reads a table with a line of names. Columns: ranks (or devices, accel), batch (or global_batch)
/// and images_per_s (or img_s) or step_ms; it may have name (or submission), nodes, machine (or
/// model), network, precision, round, how, ttt_min and epochs. Rows without ranks, batch or rate
/// are left out, as are repeated entries. A rate that contradicts the row's time to train is
/// rejected. Throws InputError naming the file, the line and the column.
Samples read_table(const std::filesystem::path& file, const ReadSpec& spec);

/// Reads all of them: a study's folder, runs' folders, files of benchmarks (.json) and tables
/// (.csv). Throws InputError as above, and naming two measurements that do not belong together.
Samples read_samples(const std::vector<std::string>& paths, const ReadSpec& spec);

/// Throws InputError naming two measurements of different networks, precisions, machines or numbers
/// of micro-batches.
void require_alike(const std::vector<Sample>& samples);

/// One configuration: all measurements with the same ranks and batch.
struct Point {
  std::size_t ranks = 0, nodes = 0, batch = 0;
  std::vector<std::string> names = {};
  std::vector<double> times_ms = {};  ///< of the repetitions
  double step_ms = 0;                 ///< their median
  double exposed_ms = 0;              ///< exposed communication, their median
  bool has_exposed = false;           ///< whether that was measured
  double spread = 0;                  ///< of a step, as a share of step_ms; 0: unknown

  double rows() const { return static_cast<double>(batch) / static_cast<double>(ranks); }
  double images_per_s() const { return 1e3 * static_cast<double>(batch) / step_ms; }
  double rate() const { return images_per_s() / static_cast<double>(ranks); }  ///< of one rank
};

/// Collapses repetitions to their medians. Sorted by ranks, then by rows. Synthetic and real data
/// are different configurations: give one kind.
std::vector<Point> points(const std::vector<Sample>& samples);

/// Repetitions that are far from the median of their configuration.
std::vector<Rejected> odd_repetitions(const std::vector<Point>& points);

}  // namespace lockstep::study
