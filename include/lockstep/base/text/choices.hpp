#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep {

template <class E>
struct Choice {
  E value;
  const char* name;
};

/// The names of an enumeration's values on the command line and in files, in the order in which
/// they are listed. Specialise it next to the enumeration; a value without a name cannot be chosen:
///   template <>
///   struct Choices<Crop> {
///     static constexpr Choice<Crop> all[] = {{Crop::random, "random"}, ...};
///   };
template <class E>
struct Choices;

template <class E>
concept Enumerated = requires {
  Choices<E>::all;
};

template <Enumerated E>
const char* choice_name(E value) {
  for (const Choice<E>& choice : Choices<E>::all)
    if (choice.value == value) return choice.name;
  throw Error("a value without a name");
}

template <Enumerated E>
std::vector<std::string> choice_names() {
  std::vector<std::string> names;
  for (const Choice<E>& choice : Choices<E>::all) names.emplace_back(choice.name);
  return names;
}

/// "WHAT: 'TEXT' is not known; choose a, b, c"
InputError unknown_choice(std::string_view text, std::string_view what,
                          const std::vector<std::string>& names);

/// The value with this name, if there is one.
template <Enumerated E>
std::optional<E> find_choice(std::string_view name) {
  for (const Choice<E>& choice : Choices<E>::all)
    if (choice.name == name) return choice.value;
  return std::nullopt;
}

/// The same. Throws unknown_choice().
template <Enumerated E>
E parse_choice(std::string_view text, std::string_view what) {
  if (const auto value = find_choice<E>(text)) return *value;
  throw unknown_choice(text, what, choice_names<E>());
}

}  // namespace lockstep
