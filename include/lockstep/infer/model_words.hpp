#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/infer/combined.hpp"

namespace lockstep::infer {

/// A model as users name it, in one word or several. The words are separate arguments, so that no
/// file's name can contain them; a file that has such a name is given as ./NAME.
///   FILE                       a network
///   FILE + FILE ...            the mean of their probabilities, or of their values
///   A above NUMBER else B      what A says where its likeliest class has a probability above
///                              NUMBER, else what B says; B may have `above` again
///   A CLASS: B CLASS: C else D what B says where A's likeliest class is the one before B, and so
///                              on; A is any of the above, the others files or FILE + FILE; several
///                              classes may be before one, and `else` is for all others
struct ModelWords {
  /// Networks that answer what the ones before send to them by its class.
  struct Arm {
    std::vector<std::string> classes;  ///< none: all that no other arm has
    std::size_t members = 1;
  };
  std::vector<std::string> files;  ///< as they are given
  std::vector<Stage> stages;
  std::vector<Arm> arms = {};  ///< of a chain, whose gate the stages are
  bool fits = false;           ///< the first stage's number is `auto`: eval finds it

  bool is_several() const { return files.size() > 1; }
  /// Of each file: 0 for those of the gate, or of a model without arms; else the arm's number,
  /// from 1.
  std::vector<std::size_t> parts() const;
  /// The words again; without the first stage, those after its `else`.
  std::string text(bool without_first_stage = false) const;
};

/// Takes the words at the front of `rest` that continue the model `first`. Throws InputError that
/// says what is wrong with them.
ModelWords take_model(const std::string& first, std::vector<std::string>& rest);

/// Throws InputError where a number must be found first, which only eval does.
void require_fitted(const ModelWords& words);

/// For the help of commands that take a model.
inline constexpr const char* several_help =
    "several files answer as one: FILE + FILE by the mean of their probabilities or values; SMALL "
    "above 0.9 else LARGE by the small one where it is surer than that; GATE CLASS: A CLASS: B "
    "else "
    "C by the one that GATE's class names; a file named + is ./+";

}  // namespace lockstep::infer
