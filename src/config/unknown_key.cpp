#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/key.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/keys.hpp"

namespace lockstep::config {
namespace {

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

/// --batchsize is --batch-size.
std::string without_dashes(std::string_view name) {
  std::string plain(name);
  std::erase(plain, '-');
  return plain;
}

/// What other programs call a key.
std::string by_other_name(const std::string& part) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 32> names{
      {{"learning-rate", "optim.lr"},
       {"batch-size", "batch"},
       {"num-workers", "data.workers"},
       {"wd", "optim.weight-decay"},
       {"validation", "data.val"},
       {"arch", "model"},
       {"device", "backend"},
       {"output", "out"},
       {"gpus", "backend"},
       {"amp", "precision"},
       {"bs", "batch"},
       {"lars", "optim.rule"},
       {"muon", "optim.rule"},
       {"optimizer", "optim.rule"},
       {"lr-scheduler", "optim.decay"},
       {"scheduler", "optim.decay"},
       {"pretrained", "init"},
       {"weights", "init"},
       {"finetune", "init"},
       {"checkpoint-path", "init"},
       {"dataset", "data.train"},
       {"data-dir", "data.train"},
       {"data-path", "data.train"},
       {"train-dir", "data.train"},
       {"val-dir", "data.val"},
       {"num-epochs", "epochs"},
       {"max-epochs", "epochs"},
       {"n-epochs", "epochs"},
       {"save-dir", "out"},
       {"output-dir", "out"},
       {"log-dir", "out"},
       {"network", "model"}}};
  for (const auto& [other, key] : names)
    if (without_dashes(part) == without_dashes(other)) return std::string(key);
  return "";
}

/// What is no key, but an option that the command line of a training has.
bool is_option_of_train(const std::string& name) {
  return name == "config" || name == "recipe" || name == "dry-run";
}

/// Keys that have this last part: "lr" is most likely optim.lr.
std::vector<std::string> with_last_part(const std::string& part) {
  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys())
    if (last_part(key.name) == part) found.push_back("'" + key.name + "'");
  return found;
}

/// The first key of a section: the one that is given most often.
std::string first_of_section(const std::string& section) {
  for (const ConfigKey& key : config_keys())
    if (key.name.starts_with(section + '.')) return key.name;
  return "";
}

/// The key that is most similar, as a whole or in its last part.
std::string similar_key(const std::string& name) {
  std::vector<std::string> whole, parts;
  for (const ConfigKey& key : config_keys()) {
    whole.push_back(key.name);
    parts.push_back(last_part(key.name));
  }
  if (std::string best = nearest(name, whole); !best.empty()) return best;
  const std::string part = nearest(last_part(name), parts);
  const auto at = std::find(parts.begin(), parts.end(), part);
  return at == parts.end() ? "" : whole[static_cast<std::size_t>(at - parts.begin())];
}

}  // namespace

std::string unknown_key(const std::string& name) {
  const std::string plain = plain_form(name), part = last_part(plain);
  const std::string text = fmt::format("unknown key '{}'", name);
  const auto meant = [&](const std::string& keys) {
    return fmt::format("{}; did you mean {}?", text, keys);
  };
  if (is_option_of_train(plain))
    return fmt::format("{}: it is no key, but an option of 'lockstep train'", text);
  if (const auto same = with_last_part(part); !same.empty()) return meant(join(same, " or "));
  if (const std::string key = by_other_name(part); !key.empty()) return meant("'" + key + "'");
  if (const std::string key = first_of_section(plain); !key.empty())
    return fmt::format("{}: it is a section, with keys such as '{}'", text, key);
  if (const std::string key = similar_key(plain); !key.empty()) return meant("'" + key + "'");
  return text + "; 'lockstep train --help' lists all keys";
}

}  // namespace lockstep::config
