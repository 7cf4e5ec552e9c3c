#pragma once

#include <filesystem>
#include <string>

#include "lockstep/backend/program.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/model.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::infer {

// What a configuration, a checkpoint and data say of a network that computes.

/// The network that the configuration names, for images of this data set, with the layers frozen
/// that it freezes. Throws InputError when the network has no such layer.
nn::Network make_network(const config::Config& config, const data::DataSetInfo& data);

/// How images of any size become the input in an evaluation, for a network with this `input`.
model::Preparation preparation(const config::Config& config, const data::DataSetInfo& input);

/// How this data set's images enter a program of `rows` rows. It measures no engines: only a
/// training takes the time for that.
backend::ProgramSpec make_program_spec(const config::Config& config, const data::DataSetInfo& data,
                                       std::size_t rows);

/// Explains a checkpoint of format 2 by the configuration in it. Throws InputError naming `path`.
model::Description describe_by_config(const model::CheckpointHeader& header,
                                      const std::filesystem::path& path);

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
    throw InputError(checkpoint + ": " + error.what());
  }
}

/// Throws InputError naming both paths when the data sets differ in image shape or classes.
void require_alike(const data::DataSetInfo& a, const std::string& path_a,
                   const data::DataSetInfo& b, const std::string& path_b);

}  // namespace lockstep::infer
