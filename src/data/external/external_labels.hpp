#pragma once

#include <hdf5.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/external/file_contents.hpp"
#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

/// The labels of another program's file.
struct ExternalLabels {
  std::vector<std::int32_t> labels;  ///< [rows]
  std::vector<std::string> texts;    ///< where labels are texts: each once; a label is its place
  std::size_t classes = 0;           ///< that a row of one-hot labels has; else 0
};

/// The only candidate, or the only one with a usual name; null if there is none or several, and if
/// only something that cannot be used has a usual name.
const StoredSet* choose(const std::vector<StoredSet>& candidates, const FileContents& contents,
                        const std::vector<std::string>& usual);

/// The data set that `key` names. Throws InputError naming `path` and the data set, where it holds
/// no numbers (or texts, where these are allowed) or lies in another file.
StoredSet find_named(hid_t file, const std::filesystem::path& path, const std::string& name,
                     std::string_view key, const std::vector<StoredSet>& candidates,
                     bool may_be_texts = false);

/// Finds and reads the labels of `images`: a whole number or a text for each row, true or false, or
/// a row of numbers of which one is 1 and the others 0 (one-hot). Throws InputError naming file and
/// row.
/// The caller holds an h5::Session.
ExternalLabels read_labels(hid_t file, const std::filesystem::path& path, const ExternalSpec& spec,
                           const FileContents& contents, const StoredSet& images);

}  // namespace lockstep::data
