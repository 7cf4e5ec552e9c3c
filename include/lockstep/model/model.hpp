#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/backend/parameters.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/model/checkpoint.hpp"
#include "lockstep/model/preparation.hpp"
#include "lockstep/nn/network.hpp"

// A trained network with all that a reader needs to use it: for evaluation, for serving, for other
// formats. Nothing here knows how it was trained.
namespace lockstep::model {

/// A tensor with its values, [tensor.count()] in the plain layout.
struct Weight {
  nn::Tensor tensor;
  std::vector<float> values;
};

/// What explains weights.
struct Description {
  nn::Network network;
  /// Height, width, channels, mean and deviation of what the network takes. Names of the classes,
  /// or none where they are not known. Another program's file may have no mean and deviation.
  data::DataSetInfo input;
  Preparation preparation;
};

struct Model {
  Description about;
  std::vector<Weight> weights;  ///< learned tensors and running statistics
  std::uint64_t steps = 0;      ///< of its training
  /// Keys of its training by which an evaluation has the same bits, for other programs' files.
  std::map<std::string, std::string> settings = {};
};

/// Describes a checkpoint of format 2, which only its configuration explains. `path` is for
/// messages.
using DescribeOld =
    std::function<Description(const CheckpointHeader& header, const std::filesystem::path& path)>;

/// Verifies the file, then reads what explains it. Throws InputError naming the file when it is not
/// a checkpoint, is damaged, is of an unknown format, does not describe a network, or is of format
/// 2 and `describe_old` is not given.
Description describe(const std::filesystem::path& path, const DescribeOld& describe_old = nullptr);

/// The same, and the weights, which must be those of the network that the file describes.
/// InputError for the zeros of a rehearsal, too. Part::average: the average in their place;
/// InputError where the file holds none.
Model load(const std::filesystem::path& path, const DescribeOld& describe_old = nullptr,
           backend::Part part = backend::Part::weights);

/// Throws InputError, beginning with `where` and naming the tensor, where a value is not finite.
void require_finite(const Weight& weight, const std::string& where = "");

/// Copies the weights into the parameters of a program for this network.
void put_weights(const Model& model, backend::Parameters& parameters);

}  // namespace lockstep::model
