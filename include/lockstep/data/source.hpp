#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/image.hpp"

namespace lockstep::data {

/// Labelled images that can be packed, as one list of rows: first the training rows, then those of
/// the source's own test split, if it has one. The order depends on nothing but the files' names
/// and contents. Constructors throw InputError naming the file or folder that is wrong.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::string kind() const = 0;  ///< as --from has it
  virtual const std::vector<std::string>& classes() const = 0;
  virtual std::size_t rows() const = 0;
  virtual std::size_t training_rows() const = 0;
  virtual std::size_t native_channels() const = 0;  ///< what `pack` makes unless it is told: 1 or 3
  virtual std::int32_t label(std::size_t row) const = 0;  ///< index into classes()
  virtual std::string name(std::size_t row) const = 0;  ///< for messages: a path, or "file, row 17"
  /// The image as stored: 1 or 3 channels. Throws InputError naming it when it is unreadable.
  virtual Image read(std::size_t row) const = 0;
  /// The image's file, as it is; empty where rows are not files of their own. Throws InputError
  /// naming it when it cannot be read.
  virtual std::string read_file(std::size_t row) const;
  /// What a human should know about what was taken and what was left out.
  const std::vector<std::string>& remarks() const { return remarks_; }

 protected:
  std::vector<std::string> remarks_;
};

/// Class folders of JPEG and PNG images: FOLDER/<class>/**.jpg|jpeg|png, or two such trees in
/// FOLDER/train and FOLDER/val (or FOLDER/test). Classes are sorted by name.
std::unique_ptr<Source> open_class_folders(const std::filesystem::path& folder);

/// The binary version of CIFAR-10 (data_batch_*.bin, test_batch.bin) or CIFAR-100 (train.bin,
/// test.bin; the fine labels): Krizhevsky, "Learning multiple layers of features from tiny images",
/// 2009.
std::unique_ptr<Source> open_cifar10(const std::filesystem::path& folder);
std::unique_ptr<Source> open_cifar100(const std::filesystem::path& folder);

/// MNIST-style IDX files, gzipped or not: one pair of images (idx3-ubyte) and labels (idx1-ubyte)
/// with "train" in their names and, if there is one, a pair with "t10k" or "test". Held in memory.
std::unique_ptr<Source> open_idx(const std::filesystem::path& folder);

/// The kind of what stands in `folder` ("cifar10", "cifar100", "idx" or "classes"), by its files'
/// names.
std::string guess_source(const std::filesystem::path& folder);

/// Opens `folder` as `kind`, one of source_kinds() but "shapes", which has no folder. Looks into
/// the sub-folder that the original archives unpack to (cifar-10-batches-bin, ...).
std::unique_ptr<Source> open_source(const std::string& kind, const std::filesystem::path& folder);
std::vector<std::string> source_kinds();

}  // namespace lockstep::data
