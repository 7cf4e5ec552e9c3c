#pragma once

#include <string>
#include <vector>

#include "lockstep/config/config.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/train/decide/packed_sets.hpp"

namespace lockstep::train {

/// Throws InputError naming a key that cannot have an effect on these data sets, and the reason:
/// what config::refuse_idle_keys() cannot know. `paths` are theirs; `validation` may be null.
void refuse_idle_data_keys(const config::Config& config, const DataSets& paths,
                           const data::DataSet& training, const data::DataSet* validation);

/// Throws InputError naming a key about a loss, or classes, that this task does not have. `path`:
/// of its rows.
void refuse_idle_loss_keys(const config::Config& config, data::Task task, const std::string& path);

/// What to say about data and keys that are allowed and most likely a mistake; a line each.
std::vector<std::string> say_doubts(const config::Config& config, const DataSets& paths,
                                    const data::DataSet& training, int ranks);

/// What to say about classes, or labels, without training rows: "1 of 11 classes has no training
/// row: 0". Empty if each has rows.
std::string say_empty_classes(const data::DataSet& training);

/// What to say where validation rows are of classes without a training row: "21 rows of validation
/// are of classes without a training row, such as 0"; else empty.
std::string say_unknown_labels(const data::DataSet& training, const data::DataSet& validation);

}  // namespace lockstep::train
