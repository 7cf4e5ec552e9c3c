#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/shard/shard_file.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

/// The files of a data set, sorted: `path` itself, the *.h5 in a folder, or those that match a
/// pattern. Throws InputError naming `path` when there are none, or when a folder lacks one of the
/// shards that the names of others count (train-00000-of-00002.h5). A pattern may leave some out,
/// and pack did if a skipped.txt is next to the folder.
std::vector<std::filesystem::path> list_shards(const std::filesystem::path& path);

/// "of the 2 shards that their names count, 1 is here: ..."; empty when none is missing.
std::string say_missing_parts(std::span<const std::filesystem::path> files);

/// Checks that all files agree on normalisation, shape, class names and the names of their data
/// sets. Throws InputError naming both files and what differs.
void check_agreement(const ShardFile& first, const ShardFile& other);

/// A file that is there twice, under two names, would count twice. Throws InputError naming both.
void require_new(const ShardFile& file, std::span<const ShardFile> before);

/// Where the labels of other programs' files are texts, makes them places in `info.classes`. These
/// are the names that the files list, else those of the training set (spec.like), else all texts in
/// the order of their bytes. Returns whether it sorted them so. `labels`: of all rows, in the order
/// of the files. Throws InputError naming file and row.
bool number_texts(std::span<const ShardFile> files, const ExternalSpec& spec, DataSetInfo& info,
                  std::span<std::int32_t> labels);

}  // namespace lockstep::data
