#include "lockstep/config/recipe.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

/// Where the recipes of this program may be: of an installed one, of a build folder, and of a
/// bundle.
std::vector<fs::path> recipe_folders() {
  const fs::path beside = own_program().parent_path(), above = beside.parent_path();
  return {above / "share/lockstep/recipes", above / "jobs/recipes",
          beside / "share/lockstep/recipes"};
}

std::vector<std::string> recipe_names(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::path& folder : folders)
    for (const fs::directory_entry& file : fs::directory_iterator(folder, none))
      if (file.path().extension() == ".toml") names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// The comment in the first line.
std::string what_it_is(const Recipe& recipe) {
  const std::string line = recipe.text.substr(0, recipe.text.find('\n'));
  return line.starts_with("# ") ? line.substr(2) : "";
}

}  // namespace

Recipe find_recipe(const std::string& name) {
  const std::vector<fs::path> folders = recipe_folders();
  const std::vector<std::string> names = recipe_names(folders);
  require(!names.empty(), fmt::format("--recipe {}: no recipes are installed: {} and {} hold none",
                                      name, folders[0].string(), folders[1].string()));
  require(std::find(names.begin(), names.end(), name) != names.end(),
          fmt::format("--recipe {}: there is none of this name; there are {}", name,
                      join(names, ", ")));
  std::error_code none;
  const std::string file = name + ".toml";
  const fs::path path = fs::exists(folders[0] / file, none) ? folders[0] / file : folders[1] / file;
  return {name, path.string(), read_text(path)};
}

void leave_out_idle_keys(Config& config, const Recipe& recipe, const std::set<std::string>& given) {
  const Config defaults;
  std::vector<const ConfigKey*> its;
  for (const TomlEntry& entry : read_toml(recipe.text, recipe.path))
    if (const ConfigKey* key = find_key(entry.key); key && !given.contains(key->name))
      its.push_back(key);
  const auto is_idle = [&](const ConfigKey* key) {
    return key->need && !key->need->met(config) && key->get(config) != key->get(defaults);
  };
  // A key that goes may have been what another one needs.
  for (auto idle = its.begin();
       (idle = std::find_if(its.begin(), its.end(), is_idle)) != its.end();)
    (*idle)->set(config, (*idle)->get(defaults));
  std::vector<std::uint64_t>& milestones = config.optim.milestones;
  const bool ends_earlier = !milestones.empty() && milestones.front() < config.epochs;
  if (ends_earlier && !given.contains("optim.milestones"))
    std::erase_if(milestones, [&](std::uint64_t epoch) { return epoch >= config.epochs; });
}

RecipeNotes recipe_notes(const Recipe& recipe, const Config& config) {
  Config its;
  apply_toml(its, recipe.text, recipe.path);
  std::vector<std::string> sets, instead;
  for (const TomlEntry& entry : read_toml(recipe.text, recipe.path)) {
    const ConfigKey& key = *find_key(entry.key);
    const std::string value = key.get(its), now = key.get(config);
    sets.push_back(fmt::format("{} = {}", key.name, value));
    if (now != value)
      instead.push_back(now.empty() ? "no " + key.name : fmt::format("{} = {}", key.name, now));
  }
  RecipeNotes notes{
      fmt::format("recipe {}: {}: {}{}", recipe.name, what_it_is(recipe), join(sets, ", "),
                  instead.empty() ? "" : "; but " + join(instead, ", ")),
      ""};
  if (its.batch != 0 && its.batch != config.batch)
    notes.other_batch = fmt::format(
        "recipe {} is for a global batch of {} rows, and this run has {}: its learning "
        "rate and warm-up may not fit",
        recipe.name, its.batch, config.batch);
  return notes;
}

}  // namespace lockstep::config
