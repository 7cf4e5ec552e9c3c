#pragma once

#include <string>

#include "lockstep/config/config.hpp"

namespace lockstep::train {

enum class PackedPart { training, validation };

/// `lockstep pack --out FOLDER` writes two data sets, FOLDER/train and FOLDER/val. The part of
/// `path` that is meant where it is such a folder; else `path` itself.
std::string packed_set(const std::string& path, PackedPart part);

/// Replaces a folder of two sets by its parts: data.train by its training set, data.val, also if it
/// is empty, by its validation set.
void find_packed_sets(config::Config& config);

}  // namespace lockstep::train
