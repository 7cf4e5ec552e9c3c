#pragma once

#include <filesystem>

namespace lockstep {

/// Makes durable that `path` is the name of a file: syncs its folder, where the file system can
/// sync folders and this user may open it. False, with errno, when that fails.
bool synchronise_folder_of(const std::filesystem::path& path);

/// Gives the file a further name, or only this one where there are no hard links. Of several
/// processes that give one name at once, one gets true; the others, and later ones, get false, with
/// errno: EEXIST, and nothing is replaced. Only where the file system has neither links nor a
/// rename that replaces nothing, and the processes are on several machines, may several get true.
bool give_new_name(const std::filesystem::path& from, const std::filesystem::path& to);

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
