#pragma once

#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/pack/source/source.hpp"
#include "pack/index/index_file.hpp"

namespace lockstep::pack {

/// Throws InputError naming `folder` when it does not exist or is not a folder.
void require_folder(const std::filesystem::path& folder);

/// Whether hidden files (".a.png") count as entries.
enum class Hidden { passed_over, named };

/// The entries of `folder`, in order of name. An entry knows its type from the
/// listing: asking for it again would cost a parallel file system a message for each file. Throws
/// InputError naming the folder and the system's reason.
std::vector<std::filesystem::directory_entry> sorted_entries(const std::filesystem::path& folder,
                                                             Hidden hidden = Hidden::passed_over);
std::vector<std::string> file_names(const std::filesystem::path& folder);  ///< its regular files

/// A folder or a link to one. Throws InputError naming a link that leads in a circle.
bool is_folder(const std::filesystem::directory_entry& entry);

/// The file's name has one of these endings, in upper or lower case.
bool has_ending(const std::filesystem::path& path, std::initializer_list<std::string_view> endings);

/// The endings that named_as_image() accepts, for messages.
inline constexpr const char* image_endings = ".jpg, .jpeg, .png, .webp or .bmp";

/// Has one of these endings, in upper or lower case.
bool named_as_image(std::string_view name);

/// A part of a path that leaves its images out: hidden, or made by a system (is_system_folder()).
bool is_left_out(std::string_view name);

/// A folder that images are in.
bool holds_images(const std::filesystem::directory_entry& entry);

/// How each kind of source writes its index. All throw InputError naming what is wrong.
/// `names_are_given`: see LayoutSpec.
void index_class_folders(const std::filesystem::path& folder, Split split, bool names_are_given,
                         IndexWriter& index);
/// "path label" in each line; paths are relative to `root`.
void index_list(const std::filesystem::path& list, const std::filesystem::path& root, Split split,
                IndexWriter& index);
/// A CSV file with a column of paths and one of labels, which a header names; without a header the
/// two are all that there is.
void index_csv(const std::filesystem::path& list, const std::filesystem::path& root, Split split,
               IndexWriter& index);
/// An error where the list gives an image two labels; a remark where it has it twice.
void say_repeats(const std::filesystem::path& list, IndexWriter& index);
/// Images with the numbers of spec.targets.
std::unique_ptr<Source> with_targets(std::unique_ptr<Source> images, const SourceSpec& spec);
/// Images without labels: all below a folder, and the path in each line of a list.
void index_images(const std::filesystem::path& folder, IndexWriter& index);
void index_paths(const std::filesystem::path& list, const std::filesystem::path& root,
                 IndexWriter& index);
/// The class of images without labels.
inline constexpr const char* no_class = "unlabelled";
/// How to read a tar.
struct TarIndexSpec {
  std::filesystem::path tar, content;  ///< content: the tar itself, or its unpacked copy
  Split split = Split::training;       ///< of images whose path names none; validation: of all
  bool labelled = true;                ///< else every image is of no_class
  bool names_are_given = false, alone = false;  ///< see LayoutSpec; alone: there is no other tar
};
void index_tar(const TarIndexSpec& spec, IndexWriter& index);

/// True when shards or other HDF5 files lie in `folder`.
bool has_shards(const std::filesystem::path& folder);
std::unique_ptr<Source> open_shards(const SourceSpec& spec);

/// A source of the images in its indexes.
std::unique_ptr<Source> open_indexed(const SourceSpec& spec, std::vector<IndexFile> indexes);

}  // namespace lockstep::pack
