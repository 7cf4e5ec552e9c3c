#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace lockstep::pack
