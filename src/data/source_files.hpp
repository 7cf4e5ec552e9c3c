#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::data {

/// Throws InputError naming `folder` when it is not there or is not a folder.
void require_folder(const std::filesystem::path& folder);

/// What stands in `folder`, hidden entries left out, in order of name. An entry knows its type from
/// the listing: asking for it again would cost a parallel file system a message for each file.
/// Throws InputError naming the folder and the system's reason.
std::vector<std::filesystem::directory_entry> sorted_entries(const std::filesystem::path& folder);
std::vector<std::string> file_names(const std::filesystem::path& folder);  ///< its regular files

}  // namespace lockstep::data
