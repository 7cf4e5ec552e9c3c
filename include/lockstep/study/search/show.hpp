#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/study/fit/interval.hpp"
#include "lockstep/study/search/search_folder.hpp"

/// What a search has found, as text, as JSON and as a page.
namespace lockstep::study {

/// The trials that have results: those that came further first, then by score; the same scores in
/// the order of numbers. Who trained them, and when, changes nothing in it.
std::vector<std::size_t> placed(const SearchFolder& folder);

/// The newest result of a trial. REQUIRES: it has one.
const LegResult& newest_leg(const SearchFolder& folder, std::size_t trial);

/// A trial's options for `lockstep train`: what it sets other than the base.
std::string options_of(const SearchFolder& folder, std::size_t trial);

/// Spearman's rank correlation: 1 where both rise together, -1 where one falls; equal values share
/// their places. Nothing (NaN) where one is the same everywhere. REQUIRES: as many of both.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

/// How a key and the score of the first rung go together, over the trials in which it counts.
struct Importance {
  std::string key;
  std::size_t trials = 0;
  Interval correlation;  ///< 95 % by a bootstrap over trials; of better scores
};
/// The keys with ranges or two choices, the strongest first; none of those with less than 8 trials.
std::vector<Importance> importance(const SearchFolder& folder);

/// A table of the first `most` trials, and the best one.
std::string search_text(const SearchFolder& folder,
                        std::size_t most = std::numeric_limits<std::size_t>::max());
/// All that the page is made of.
std::string search_json(const SearchFolder& folder);
/// One page that needs nothing else: curves, rungs, parallel coordinates, slices.
std::string search_page(const SearchFolder& folder);

}  // namespace lockstep::study
