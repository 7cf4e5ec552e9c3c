#pragma once

#include "lockstep/backend/parameters.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/nn/network.hpp"

namespace lockstep::train {

/// Fills the weights of a run that begins, and the average, from the file config.init; with
/// head = new, or auto for other classes, all but the last layer, which stays as it is. Throws
/// InputError naming the file when it cannot be read, holds another network or values that are not
/// finite, or its last layer is to be kept and has other classes. `is_root`: this rank says what
/// was read. Each rank reads the file; an audit finds ranks that read different ones.
void begin_with_weights(const config::Config& config, const data::DataSetInfo& input,
                        const nn::Network& network, backend::Parameters& parameters, bool is_root);

}  // namespace lockstep::train
