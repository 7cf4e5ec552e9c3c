#pragma once

#include <string>

#include "lockstep/backend/backend.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/shard/data_set.hpp"

namespace lockstep::train {

class Pipeline;

/// Checks that all ranks were started with the same options, except those that may differ from node
/// to node: paths of data, threads, the loader's workers and slots. Throws InputError on every
/// rank, naming the ranks and the keys. Collective.
void require_same_options(const config::Config& config, comm::Control& control);

/// Checks that all ranks see the same rows: number, shape, classes, normalisation and labels.
/// Throws InputError on every rank, naming the key (or option) `what` and which rank sees what.
/// Collective.
void require_same_data(const data::DataSet& rows, const std::string& what, comm::Control& control);

/// Checks, before the first sum, that all replicas keep parameters in the same order: the formats
/// of convolutions on CPUs depend on the instruction set. `parameters`, of this rank's stage, hold
/// what the seed gives. Throws InputError on every rank, naming what the ranks compute with.
/// Collective.
void require_same_form(const backend::Parameters& parameters, const backend::Backend& backend,
                       const Pipeline& pipeline, comm::Control& control);

}  // namespace lockstep::train
