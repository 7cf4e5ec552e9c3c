#include "lockstep/infer/model_words.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::infer {
namespace {

constexpr const char *plus_word = "+", *above_word = "above", *else_word = "else",
                     *auto_word = "auto";

/// A command line that has the words in one argument, as in quotes.
void require_separate(const std::string& word) {
  const auto has = [&](const char* inner) { return word.find(inner) != word.npos; };
  require(
      !(has(" + ") || has(" above ") || has(" > ") || has(": ")) || std::filesystem::exists(word),
      fmt::format("'{}': give the words of a model as separate arguments: A.h5 + B.h5, "
                  "SMALL.h5 above 0.9 else LARGE.h5, or GATE.h5 cat: CATS.h5 else OTHERS.h5",
                  word));
}

double threshold_of(const std::string& word) {
  const double number = real_number(word).value_or(-1);
  require(number >= 0 && number <= 1,
          fmt::format("above: '{}' is not a number from 0 to 1, nor auto", word));
  return number;
}

bool is_class(const std::string& word) { return word.size() > 1 && word.ends_with(':'); }

class WordReader {
 public:
  WordReader(ModelWords& model, std::vector<std::string>& rest) : model_(model), rest_(rest) {}
  bool next_is(const char* word) const { return !rest_.empty() && rest_.front() == word; }
  bool next_is_class() const { return !rest_.empty() && is_class(rest_.front()); }
  /// The next word, of which this `after` the others says what it must be.
  std::string take(const std::string& what) {
    require(!rest_.empty(), fmt::format("{} ...: {} must follow", model_.text(), what));
    const std::string word = rest_.front();
    rest_.erase(rest_.begin());
    return word;
  }
  void take_file(const std::string& after) {
    const std::string file = take(fmt::format("after '{}' a file", after));
    require_separate(file);
    model_.files.push_back(file);
  }
  /// The files of an arm, after the words that say whose rows it answers.
  void take_arm(ModelWords::Arm arm, const std::string& after) {
    take_file(after);
    for (; next_is(plus_word); ++arm.members) {
      take("");
      take_file(plus_word);
    }
    require(!next_is(above_word),
            fmt::format("above: after '{}' is one file, or FILE + FILE", after));
    model_.arms.push_back(std::move(arm));
  }

 private:
  ModelWords& model_;
  std::vector<std::string>& rest_;
};

}  // namespace

std::vector<std::size_t> ModelWords::parts() const {
  std::vector<std::size_t> parts(files.size(), 0);
  std::size_t of_arms = 0;
  for (const Arm& arm : arms) of_arms += arm.members;
  for (std::size_t arm = 0, at = parts.size() - of_arms; arm < arms.size(); ++arm)
    for (std::size_t m = 0; m < arms[arm].members; ++m) parts[at++] = arm + 1;
  return parts;
}

std::string ModelWords::text(bool without_first_stage) const {
  std::string words;
  std::size_t file = without_first_stage ? stages.front().members : 0;
  const auto add_members = [&](std::size_t members) {
    for (std::size_t m = 0; m < members; ++m) words += (m == 0 ? "" : " + ") + files.at(file++);
  };
  for (std::size_t s = without_first_stage ? 1 : 0; s < stages.size(); ++s) {
    add_members(stages[s].members);
    if (s + 1 == stages.size()) break;
    words += s == 0 && fits ? fmt::format(" {} {} {} ", above_word, auto_word, else_word)
                            : fmt::format(" {} {} {} ", above_word, stages[s].above, else_word);
  }
  for (const Arm& arm : arms) {
    for (const std::string& name : arm.classes) words += fmt::format(" {}:", name);
    words += arm.classes.empty() ? fmt::format(" {} ", else_word) : " ";
    add_members(arm.members);
  }
  return words;
}

namespace {

/// The arms of a chain, if its gate is followed by any.
void take_arms(ModelWords& model, WordReader& words) {
  while (words.next_is_class()) {
    ModelWords::Arm arm;
    std::string word;
    while (words.next_is_class()) {
      word = words.take("");
      arm.classes.push_back(word.substr(0, word.size() - 1));
    }
    words.take_arm(std::move(arm), word);
  }
  if (model.arms.empty()) return;
  require(!model.fits, "above: in a chain, auto finds nothing: find the gate's number first");
  if (!words.next_is(else_word)) return;
  words.take("");
  words.take_arm({}, else_word);
}

}  // namespace

ModelWords take_model(const std::string& first, std::vector<std::string>& rest) {
  require_separate(first);
  ModelWords model{.files = {first}, .stages = {{}}};
  WordReader words(model, rest);
  for (;;) {
    if (words.next_is(plus_word)) {
      words.take("");
      words.take_file(plus_word);
      ++model.stages.back().members;
    } else if (words.next_is(above_word)) {
      words.take("");
      const std::string number = words.take("after 'above' a number");
      if (number == auto_word) {
        require(model.stages.size() == 1,
                "above: only the first number can be auto: find the later ones first");
        model.fits = true;
      } else {
        model.stages.back().above = threshold_of(number);
      }
      const std::string word = words.take("'else' and a model");
      require(word == else_word,
              fmt::format("{} above {} {} ...: 'else' and a model must follow the number",
                          model.text(), number, word));
      words.take_file(else_word);
      model.stages.emplace_back();
    } else {
      take_arms(model, words);
      return model;
    }
  }
}

void require_fitted(const ModelWords& words) {
  require(!words.fits,
          fmt::format("{}: only eval finds the number: it prints the model with it", words.text()));
}

}  // namespace lockstep::infer
