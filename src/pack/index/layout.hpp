#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "pack/index/index_file.hpp"

namespace lockstep::pack {

/// What is known before the folders are.
struct LayoutSpec {
  std::filesystem::path source;  ///< the folder or the tar, for messages
  Split split = Split::training;
  /// The classes are below the folder that all images share, as in a tar of a folder; else they
  /// are right below the source.
  bool below_shared = false;
  bool names_are_given = false;  ///< by the user: then no doubt about classes ends the work
  bool whole = true;  ///< all images are in this source: a class folder without any is an error
};

/// Decides by their paths what the folders below a source are: "train/cat/deep" is the class cat of
/// a split, if all folders next to "train" are splits, too; else "cat/deep" is the class cat. What
/// is in no class folder gets no label and is left out. A folder and a tar of it give the same.
/// Throws InputError
/// - when a folder of images is next to the splits, and is not one,
/// - when a split has two folders,
/// - when folders look like splits, or like something else that each class is in (two of them hold
///   folders of the same names), or
/// - when a class folder holds no images.
std::vector<Place> place_folders(const LayoutSpec& spec, const std::vector<ImageFolder>& folders);

/// The split that a folder is named after, in upper or lower case: train (training, train_set), val
/// (valid, validation) or test (testing); false for other names.
bool names_a_split(std::string_view folder, Split& split);

/// Folders that programs make next to images, with small copies of them: "@eaDir", "__MACOSX".
bool is_system_folder(std::string_view name);

}  // namespace lockstep::pack
