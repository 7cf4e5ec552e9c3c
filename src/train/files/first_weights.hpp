#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/parameters.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/model.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::train {

/// What a run begins with, from the file config.init: with head = new, or auto for other classes,
/// all but the last layer, which the file may then lack; with init-channels the first convolution
/// for the data set's channels. Throws InputError naming the file when it cannot be read, holds
/// another network or values that are not finite, or its last layer is to be kept and has other
/// classes.
struct FirstWeights {
  std::string path;
  model::Model model;
  bool keeps_head = false;
  /// For each channel of the data set the file's channel whose filters it begins with, or the mean
  /// of all, where that is -1; empty: new ones.
  std::optional<std::vector<int>> channels = std::nullopt;  ///< nullopt: as they are
  std::string filters = {};                                 ///< the first convolution's name
};
FirstWeights read_first_weights(const config::Config& config, const data::DataSetInfo& input,
                                const nn::Network& network);

/// Fills the weights of a run that begins, and the average, with those; a layer that is not read
/// stays as it is. Throws as read_first_weights(). `is_root`: this rank says what
/// was read. Each rank reads the file; an audit finds ranks that read different ones.
void begin_with_weights(const config::Config& config, const data::DataSetInfo& input,
                        const nn::Network& network, backend::Parameters& parameters, bool is_root);

}  // namespace lockstep::train
