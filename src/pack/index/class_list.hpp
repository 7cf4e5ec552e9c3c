#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pack/index/index_file.hpp"

namespace lockstep::pack {

/// True when two names differ, but only in blanks, or in the Unicode form of their letters: "é" is
/// one character or two (NFC, NFD).
bool look_alike(std::string_view a, std::string_view b);

/// Where a class has its name, for messages: "names.txt, line 7".
using PlaceOfName = std::function<std::string(std::string_view name)>;

/// Throws InputError naming the place of a class whose name looks like another's, with the bytes of
/// both, has a control character, or is only blanks. Returns what should be said of names that
/// differ only in case, blanks, '-' and '_'; else an empty text.
std::string check_names(const std::vector<std::string>& names, const PlaceOfName& place);

/// "; the class "rosé" looks alike, but ...", or "; did you mean 'Cat'?"; empty where no known name
/// is near.
std::string say_near(std::string_view name, const std::vector<std::string>& known);

/// The classes of all indexes of a source together.
struct ClassList {
  std::vector<std::string> names;
  /// For each index: its label -> index into `names`.
  std::vector<std::vector<std::int32_t>> labels;
  std::size_t untrained = 0;  ///< classes without a training image
  std::string remark;         ///< of names that are almost the same; may be empty
  bool are_numbers = false;   ///< the names are the labels that were given, which are numbers
};

/// Names are sorted, or in the order of `names_file`. Labels that were given and are all numbers
/// are indexes into `names_file`, or become the names. Throws InputError naming a label and its
/// line or file that is out of range, not in the file, or only in `validation`, and two names that
/// look alike; without
/// `names_file` also a number that is not a whole one from 0, or that is given among words.
ClassList merge_classes(const std::vector<IndexFile>& indexes, Split validation,
                        const std::filesystem::path& names_file);

}  // namespace lockstep::pack
