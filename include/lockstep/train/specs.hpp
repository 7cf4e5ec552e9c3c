#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/nodes.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/augment/mix.hpp"
#include "lockstep/data/loading/sampler.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/model/model.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/optim/schedule.hpp"
#include "lockstep/train/trainer.hpp"

namespace lockstep::train {

/// Throws InputError naming `path` unless it has 1 to 4 channels, which is what networks take.
void require_channels(const data::DataSetInfo& data, const std::string& path);

/// How to read files that are not shards: the training set or, if `trained_on` (its training set)
/// is given, a validation set.
data::ExternalSpec external_spec(const config::Config& config,
                                 const data::DataSetInfo* trained_on = nullptr);

/// A training's configuration, to read `path` with: labels in another file belong to the
/// validation set that they were named for, and to no other.
config::Config for_other_data(config::Config config, const std::string& path);

/// One line about which data sets of other programs' files are read, and the set's doubts. For
/// rank 0; the others say nothing.
void say_what_is_read(const data::DataSet& rows, const std::string& path);

/// The order of the training rows. `rows`: the training set. Replica and nodes are left open.
data::SamplerSpec training_order(const config::Config& config, const data::DataSet& rows,
                                 int replicas);

/// backend::LossSpec::weights by optim.class-weights or optim.positive-weights; empty where neither
/// is given. Class weights are scaled so that their mean over the rows of an epoch is 1: then the
/// rate keeps its meaning, and only the weights' ratios matter. `balance`: of the training's order,
/// or null. Throws InputError naming the key.
std::vector<float> loss_weights(const config::Config& config, const data::DataSet& training,
                                const data::ClassBalance* balance);
/// A line about the weights and the balance for a person; empty where there are none.
std::string say_weights(const std::vector<float>& weights, const data::ClassBalance* balance,
                        const data::DataSetInfo& training);

/// How the rows of a training set become the network's input; data::delivered() gives its shape.
data::AugmentSpec training_augment(const config::Config& config, const data::DataSetInfo& stored);

/// How training images are mixed with each other.
data::MixSpec training_mix(const config::Config& config);

/// The file that keeps what tune measures.
std::string plan_file(const config::Config& config);

/// Throws InputError where an image cannot be cut into that many tiles.
void require_tiles(const nn::Network& network, std::size_t tiles);

/// The trainer's part of the configuration; replicas as in resolve(), and which of them this is.
TrainerSpec make_trainer_spec(const config::Config& config, const data::DataSetInfo& data,
                              int replicas, int replica = 0);

/// The learning-rate schedule in steps.
optim::ScheduleSpec make_schedule(const config::Config& config, std::uint64_t steps_per_epoch);
/// How ranks sum gradients in each step.
reduce::ExchangeKind exchange_of(config::Wire wire);
reduce::ExchangeKind exchange_of(const config::Config& config);
/// Whether ranks train in groups, each of those of a node.
bool has_groups_by_node(const config::Config& config);
/// What holds where ranks have no one to exchange gradients or weights with, or all are one group:
/// without int8, PowerSGD, rare agreements and gossip.
config::Config with_exact_exchange(config::Config config);
/// Whether a run with these keys that continues an earlier one has no one to exchange with: it has
/// one rank, or one group. It then does so exactly: see with_exact_exchange().
bool continues_alone(const config::Config& config, int replicas, const comm::Nodes& nodes);
/// Bytes that the exchange's state adds to a checkpoint, at most. No rank holds them in memory.
reduce::SavedBytes exchange_state_bytes(const config::Config& config, const nn::Network& network);
/// From which step on gradients travel as products (reduce::ExchangeKind::power_sgd).
reduce::PowerSgdSpec make_power_sgd_spec(const config::Config& config,
                                         std::uint64_t steps_per_epoch);
/// How groups of ranks train alone (reduce::ExchangeKind::local). Throws InputError naming the keys
/// where all ranks would be one group.
reduce::LocalSpec make_local_spec(const config::Config& config, const comm::Nodes& nodes,
                                  std::uint64_t steps_per_epoch);

}  // namespace lockstep::train
