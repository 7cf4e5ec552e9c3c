#pragma once

#include <filesystem>
#include <string>

namespace lockstep::train {

enum class PackedPart { training, validation };

/// Whether the folder is a data set, or has train/ or val/ that is one.
bool holds_data_set(const std::filesystem::path& folder);

/// `lockstep pack --out FOLDER` writes two data sets, FOLDER/train and FOLDER/val. The part of
/// `path` that is meant where it is such a folder; else `path` itself.
std::string packed_set(const std::string& path, PackedPart part);

/// The same for a path that a user gave. Throws InputError where the folder has only the other
/// part.
std::string given_set(const std::string& path, PackedPart part);

/// Throws InputError as given_set() and opening the set do where it has no files.
void require_files(const std::string& path, PackedPart part);

/// The paths of a run's data sets. `val` may be empty.
struct DataSets {
  std::string train, val;
};

/// The sets that are meant: where `given.train` is a folder of two, its training set and, also if
/// `given.val` is empty, its validation set.
DataSets find_data_sets(const DataSets& given);

}  // namespace lockstep::train
