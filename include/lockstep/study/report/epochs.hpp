#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

/// How many epochs a training needs to an accuracy, over its global batch.
namespace lockstep::study {

struct EpochsAt {
  double batch = 0, epochs = 0;
};

struct EpochsCurve {
  std::string source;            ///< who measured it, for the report
  std::string goal;              ///< "75.9 % top-1"
  std::vector<EpochsAt> points;  ///< sorted by batch
  /// Between two points by the logarithm of the batch; down to a quarter of the smallest as many as
  /// there. Empty for a batch beyond the largest or smaller than that: no one has shown that it
  /// gets there.
  std::optional<double> at(double batch) const;
};

/// MLPerf's reference convergence points v4.0 for ResNet-50 on ImageNet.
EpochsCurve reference_epochs();

/// A table with the columns batch and epochs. Throws InputError naming file and line.
EpochsCurve read_epochs(const std::filesystem::path& file, const std::string& goal);

/// From runs' folders: the first epoch whose validation reached this share of right answers; the
/// median over the runs of a batch. Throws InputError naming a run that did not reach it.
EpochsCurve epochs_of_runs(const std::vector<std::string>& folders, double top1);

}  // namespace lockstep::study
