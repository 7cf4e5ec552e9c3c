#pragma once

#include <filesystem>

namespace lockstep {

/// Makes durable that `path` is the name of a file: syncs its folder. False, with errno, when that
/// fails.
bool synchronise_folder_of(const std::filesystem::path& path);

/// Gives the file the name `to`, replaces what has it, and syncs the folder of `to`, so that the
/// new name outlives a crash of the machine. Sync what the file holds before. Throws as
/// fail_by_system().
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Gives the file the first free one of the names `to`, `to`-2, `to`-3, ... in the same folder, and
/// syncs the folder. Replaces nothing; where the file system cannot promise that, only one process
/// at a time may call it. Returns the name. Throws as fail_by_system().
std::filesystem::path rename_to_free(const std::filesystem::path& from,
                                     const std::filesystem::path& to);

}  // namespace lockstep
