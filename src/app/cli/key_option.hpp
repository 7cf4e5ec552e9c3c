#pragma once

#include <map>
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

/// The keys for reading other programs' HDF5 files, as given to a command that reads the rest of
/// its configuration later.
using DataKeys = std::map<std::string, std::string>;

inline void add_data_keys(Arguments app, DataKeys& keys) {
  for (const config::ConfigKey& key : config::config_keys())
    if (key.for_external)
      app.add_taken(
             "--" + key.name,
             [&keys, name = key.name](const std::string& value) { keys[name] = value; }, key.help)
          .called("VALUE");
}

/// The training may have had other names for its validation set.
inline void take_data_keys(const DataKeys& keys, config::Config& config) {
  for (const auto& [name, value] : keys) {
    config::set_key(config, name, value);
    if (name == "data.images") config.data.val_images = value;
    if (name == "data.labels") config.data.val_labels = value;
  }
}

}  // namespace lockstep::app
