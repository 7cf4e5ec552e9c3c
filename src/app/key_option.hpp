#pragma once

#include <string>

#include "app/arguments.hpp"
#include "lockstep/train/config_keys.hpp"

namespace lockstep::app {

/// One key of a configuration as an option of a command that is told a few of them. Parsing throws
/// InputError as train::set_key() does; `config` must live as long as the app.
inline void add_key(Arguments app, const train::ConfigKey& key, train::Config& config) {
  app.add_taken(
         "--" + key.name,
         [&config, name = key.name](const std::string& value) {
           train::set_key(config, name, value);
         },
         key.help)
      .called("VALUE");
}

}  // namespace lockstep::app
