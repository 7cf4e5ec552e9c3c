#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/lint/lint.hpp"

namespace lockstep::cluster {

/// Collects findings. Line 0 is the whole script.
class Findings {
 public:
  void error(std::size_t line, std::string rule, std::string text) {
    all_.push_back({line, Severity::error, std::move(rule), std::move(text)});
  }
  void warning(std::size_t line, std::string rule, std::string text) {
    all_.push_back({line, Severity::warning, std::move(rule), std::move(text)});
  }
  void note(std::size_t line, std::string rule, std::string text) {
    all_.push_back({line, Severity::note, std::move(rule), std::move(text)});
  }
  std::vector<Finding> take() { return std::move(all_); }

 private:
  std::vector<Finding> all_;
};

}  // namespace lockstep::cluster
