#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/loading/image_preparer.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "lockstep/model/preparation.hpp"
#include "lockstep/pack/source/source.hpp"

namespace lockstep::serve {

/// Rows to predict, in a fixed order, with what is known of each.
///
/// **Thread safety:** any thread may call all methods.
class InputRows : public data::RowSource {
 public:
  virtual std::string name(std::size_t row) const = 0;  ///< of the image's file; may be empty
  virtual std::size_t name_bytes() const = 0;           ///< the most that a name has; 0: no names
  virtual bool labelled() const = 0;
  /// Identifies the rows: the same on all machines that have the same data.
  virtual std::string fingerprint() const = 0;
};

/// The rows of a data set, made by `spec`. `labelled` false: its labels are not used. Throws
/// InputError as data::delivered() does.
std::unique_ptr<InputRows> packed_rows(data::DataSet rows, const data::AugmentSpec& spec,
                                       bool labelled);

/// Images in files: what they are, and what a network makes of them.
struct ImageRowsSpec {
  pack::SourceSpec source;  ///< of kind "classes", "list" or "tar"
  data::ImageForm form;     ///< how the network's training set was packed
  model::Preparation preparation;
  data::DataSetInfo input;  ///< what the network takes, with the names of its classes
  /// Gets an index of the images, which later starts use again. Workers share it, and make it
  /// together.
  std::filesystem::path index;
  double beat_s = 5, stale_s = 60;  ///< of a worker that makes an index: see WorkFolderSpec
};

/// The images of class folders, a list or tars; the bits of a row are those of a validation on the
/// packed images. Labels are the network's classes of the same names. Throws InputError naming what
/// cannot be read, and a label that is no class of the network.
std::unique_ptr<InputRows> image_rows(const ImageRowsSpec& spec);

}  // namespace lockstep::serve
