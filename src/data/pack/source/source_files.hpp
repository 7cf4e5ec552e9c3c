#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/pack/source/index_file.hpp"
#include "lockstep/data/source.hpp"

namespace lockstep::data {

/// Throws InputError naming `folder` when it is not there or is not a folder.
void require_folder(const std::filesystem::path& folder);

/// What stands in `folder`, hidden entries left out, in order of name. An entry knows its type from
/// the listing: asking for it again would cost a parallel file system a message for each file.
/// Throws InputError naming the folder and the system's reason.
std::vector<std::filesystem::directory_entry> sorted_entries(const std::filesystem::path& folder);
std::vector<std::string> file_names(const std::filesystem::path& folder);  ///< its regular files

/// A folder or a link to one. Throws InputError naming a link that leads in a circle.
bool is_folder(const std::filesystem::directory_entry& entry);

/// .jpg, .jpeg or .png, in any case of letters.
bool named_as_image(std::string_view name);

/// The part that a folder's name stands for: train, val (valid, validation) or test; false when
/// none.
bool names_a_part(std::string_view folder, Part& part);

/// True when `folder` holds class folders: its own name then says which part it is.
bool has_class_folders(const std::filesystem::path& folder);

/// What each kind of source writes into its index. All throw InputError naming what is wrong.
void index_class_folders(const std::filesystem::path& folder, Part part, IndexWriter& index);
/// "path label" in each line; paths are relative to `root`.
void index_list(const std::filesystem::path& list, const std::filesystem::path& root, Part part,
                IndexWriter& index);
/// `content` is the tar itself, or what it was unpacked to. Members below a folder train, val or
/// test go to that part, the others to `part`; all to validation when `part` is that.
void index_tar(const std::filesystem::path& tar, const std::filesystem::path& content, Part part,
               IndexWriter& index);

/// True when shards or other HDF5 files lie in `folder`.
bool has_shards(const std::filesystem::path& folder);
std::unique_ptr<Source> open_shards(const SourceSpec& spec);

/// A source of what its indexes name.
std::unique_ptr<Source> open_indexed(const SourceSpec& spec, std::vector<IndexFile> indexes);

}  // namespace lockstep::data
