#pragma once

#include <string>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/model.hpp"

namespace lockstep::app {

// What commands ask of a checkpoint that they use.

/// How the training of this checkpoint computed and read its data, for whatever the options do not
/// say. A file that explains its network on its own does not need it. `precision`: in place of the
/// training's; may be empty.
config::Config settings_of(const std::string& checkpoint, const std::string& precision);

/// The same of a model that was read from this file, which may be another program's. That says how
/// it computed, if lockstep has written it.
config::Config settings_of(const std::string& checkpoint, const model::Model& model);

/// Keeps in the model how its training computed, for other programs' files: an evaluation of them
/// then has the same bits.
void keep_settings(model::Model& model, const config::Config& config);

/// What the network takes. Where the checkpoint does not name its classes, they are those of `rows`
/// if there are as many, else numbers.
data::DataSetInfo input_of(const model::Description& about, const data::DataSetInfo* rows);

/// What `build` makes of the checkpoint's network; an error of it names the file.
template <class Build>
auto of_checkpoint(const std::string& checkpoint, Build&& build) {
  try {
    return build();
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}: {}", checkpoint, error.what()));
  }
}

}  // namespace lockstep::app
