#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/study/search/search_folder.hpp"

/// What the text and the page of a search have in common.
namespace lockstep::study {

/// The rows of tables, of which the first names the columns: one row a rung, or a trial.
std::vector<std::vector<std::string>> rungs_table(const SearchFolder& folder);
std::vector<std::vector<std::string>> trials_table(const SearchFolder& folder);
/// "3", "0 (base)"
std::string name_of(std::size_t trial);

/// A key's value as a number: of choices that are texts, their place. Empty for another value than
/// those of the space.
std::optional<double> number_of(const Dimension& dimension, const config::Config& keys);
/// Whether the key's condition is met.
bool counts_in(const Dimension& dimension, const config::Config& keys);

/// Trials that continued elsewhere than they began.
std::vector<std::string> placement_notes(const SearchFolder& folder);

}  // namespace lockstep::study
