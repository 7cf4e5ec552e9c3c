#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/infer/combined.hpp"
#include "lockstep/infer/model_words.hpp"
#include "lockstep/model/model.hpp"

namespace lockstep::infer {

/// One network of a model, as its file holds it.
struct MemberModel {
  std::string name;  ///< as it was given
  std::string file;  ///< the file itself
  model::Model model;
  config::Config config;  ///< how its training computed
  std::size_t part = 0;   ///< of a chain: 0 in its gate, else in the arm of this number, from 1
};

/// The networks of a model, in the order of its words.
struct MemberModels {
  std::vector<MemberModel> all;
  Arrangement arrangement;  ///< how they answer as one model
  /// The names of the model's classes; none where no file has them. Those of a chain are the ones
  /// of its arms: if they all have the same ones, these; else each name once, in the order of the
  /// alphabet, in which packed data sets have them.
  std::vector<std::string> classes;
};

/// How members are read.
struct MemberReading {
  bool average = false;                     ///< the average of the weights
  std::string precision;                    ///< in place of the training's; may be empty
  const data::DataSetInfo* rows = nullptr;  ///< says what another program's file leaves open
};

/// Reads the networks of a model from these files, in the order of the words. Throws InputError
/// naming the file; and naming two files whose networks take other images, or whose images are
/// prepared in another way; or have other classes, but in different parts of a chain. The classes
/// of its words must be its gate's.
MemberModels read_members(const ModelWords& words, const std::vector<std::string>& files,
                          const MemberReading& reading);

/// What the networks take, with the names of the classes, if one of them or `rows` has them.
data::DataSetInfo input_of(const MemberModels& members, const data::DataSetInfo* rows);

/// Throws InputError naming a file that does not say how its network's input is normalised.
void require_normalised(const MemberModels& members);

/// A model that can compute.
struct RunningModel {
  std::vector<std::unique_ptr<backend::Parameters>> parameters;
  std::unique_ptr<Classifier> model;
  Combined* combined = nullptr;  ///< the same, where it is an ensemble or a cascade
  std::string hash;              ///< of all weights
};

/// Compiles the networks for batches of `batch` rows; their weights are moved there. A first stage
/// runs such batches as they are, so that its rows have the bits that each network gives on its
/// own; a later one has a ladder of sizes.
RunningModel run_members(MemberModels& members, backend::Backend& backend, std::size_t batch);

}  // namespace lockstep::infer
