#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/pack/source/source.hpp"
#include "pack/index/index_file.hpp"

namespace lockstep::pack {

/// Throws InputError naming `folder` when it does not exist or is not a folder.
void require_folder(const std::filesystem::path& folder);

/// The entries of `folder` without hidden ones, in order of name. An entry knows its type from the
/// listing: asking for it again would cost a parallel file system a message for each file. Throws
/// InputError naming the folder and the system's reason.
std::vector<std::filesystem::directory_entry> sorted_entries(const std::filesystem::path& folder);
std::vector<std::string> file_names(const std::filesystem::path& folder);  ///< its regular files

/// A folder or a link to one. Throws InputError naming a link that leads in a circle.
bool is_folder(const std::filesystem::directory_entry& entry);

/// The endings that named_as_image() accepts, for messages.
inline constexpr const char* image_endings = ".jpg, .jpeg, .png, .webp or .bmp";

/// Has one of these endings, in upper or lower case.
bool named_as_image(std::string_view name);

/// The split that a folder is named after: train, val (valid, validation) or test; false for other
/// names.
bool names_a_split(std::string_view folder, Split& split);

/// True when `folder` holds class folders: its own name then says which split it is.
bool has_class_folders(const std::filesystem::path& folder);

/// How each kind of source writes its index. All throw InputError naming what is wrong.
void index_class_folders(const std::filesystem::path& folder, Split split, IndexWriter& index);
/// "path label" in each line; paths are relative to `root`.
void index_list(const std::filesystem::path& list, const std::filesystem::path& root, Split split,
                IndexWriter& index);
/// A CSV file with a column of paths and one of labels, which a header names; without a header the
/// two are all that there is.
void index_csv(const std::filesystem::path& list, const std::filesystem::path& root, Split split,
               IndexWriter& index);
/// Images without labels: all below a folder, and the path in each line of a list.
void index_images(const std::filesystem::path& folder, IndexWriter& index);
void index_paths(const std::filesystem::path& list, const std::filesystem::path& root,
                 IndexWriter& index);
/// The class of images without labels.
inline constexpr const char* no_class = "unlabelled";
/// `content` is the tar itself, or its unpacked copy. Members below a folder train, val or test go
/// to that split, the others to `split`. If `split` is validation, all go there. Not `labelled`:
/// every image, of no_class.
void index_tar(const std::filesystem::path& tar, const std::filesystem::path& content, Split split,
               IndexWriter& index, bool labelled);

/// True when shards or other HDF5 files lie in `folder`.
bool has_shards(const std::filesystem::path& folder);
std::unique_ptr<Source> open_shards(const SourceSpec& spec);

/// A source of the images in its indexes.
std::unique_ptr<Source> open_indexed(const SourceSpec& spec, std::vector<IndexFile> indexes);

}  // namespace lockstep::pack
