#pragma once

#include <string>

#include "app/cli/arguments.hpp"
#include "lockstep/config/keys.hpp"

namespace lockstep::app {

/// One key of a configuration as an option of a command that has only a few of them. Parsing throws
/// InputError as config::set_key() does; `config` must live as long as the app.
inline void add_key(Arguments app, const config::ConfigKey& key, config::Config& config) {
  app.add_taken(
         "--" + key.name,
         [&config, name = key.name](const std::string& value) {
           config::set_key(config, name, value);
         },
         key.help)
      .called("VALUE");
}

}  // namespace lockstep::app
