#pragma once

#include <string>

#include "lockstep/config/config.hpp"

namespace lockstep::test {

inline config::Config with_data() {
  config::Config config;
  config.data.train = "shards";
  return config;
}

/// What the text says, on top of that.
inline config::Config parsed(const std::string& text) {
  config::Config config = with_data();
  config::apply_toml(config, text, "run.toml");
  return config;
}

}  // namespace lockstep::test
