#pragma once

#include <set>
#include <string>

#include "lockstep/config/config.hpp"

namespace lockstep::config {

/// What a published recipe sets: a file NAME.toml of keys, whose first line, a comment, says what
/// it is and where it is from. The files are in share/lockstep/recipes next to the installed
/// program's bin, or in jobs/recipes next to the build folder.
struct Recipe {
  std::string name, path, text;
};

/// Throws InputError that lists the recipes if there is none of this name.
Recipe find_recipe(const std::string& name);

/// `config` has the recipe's keys and then those of `given`, by name. Of the recipe's keys that are
/// not among these, what has no effect next to them goes back to the default: keys whose need is
/// not met, and milestones at the run's end or later, unless all are.
void leave_out_idle_keys(Config& config, const Recipe& recipe, const std::set<std::string>& given);

/// Two or fewer lines about a run by this recipe, whose configuration is resolved: what the recipe
/// sets and what was given instead, and that it is for another global batch.
struct RecipeNotes {
  std::string sets;
  std::string other_batch;  ///< empty: it is for this one
};
RecipeNotes recipe_notes(const Recipe& recipe, const Config& config);

}  // namespace lockstep::config
