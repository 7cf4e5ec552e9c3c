#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/external/external.hpp"
#include "lockstep/data/image/image.hpp"

namespace lockstep::pack {

/// Labelled images that can be packed, as one list of rows: first the training rows, then those of
/// the source's test split, if it has one. The order depends only on the files' names and contents.
/// Constructors throw InputError naming the file or folder that is wrong.
class Source {
 public:
  virtual ~Source() = default;
  virtual std::string kind() const = 0;  ///< as in --from
  virtual const std::vector<std::string>& classes() const = 0;
  /// The data give numbers as labels, of which the names of the classes are made. Folders do not.
  virtual bool labels_are_numbers() const { return false; }
  virtual std::size_t rows() const = 0;
  virtual std::size_t training_rows() const = 0;
  virtual std::size_t native_channels() const = 0;  ///< the default of `pack`: 1 or 3
  /// What is known of rows that are of a data set already; null: they are images of uint8.
  virtual const data::DataSetInfo* stored() const { return nullptr; }
  virtual std::int32_t label(std::size_t row) const = 0;  ///< index into classes()
  /// What a row says: one of classes(), or of each of them, in the order of classes(), whether it
  /// applies, or a value; NaN: not known.
  virtual data::Task task() const { return data::Task::classes; }
  virtual float wanted(std::size_t, std::size_t) const { return 0; }
  virtual std::string name(std::size_t row) const = 0;  ///< for messages: a path, or "file, row 17"
  /// For messages about its label: name(), after the line of a list that has it.
  virtual std::string where(std::size_t row) const { return name(row); }
  /// The image as stored: 1 or 3 channels. Throws InputError naming it when it is unreadable.
  virtual data::Image read(std::size_t row) const = 0;
  /// The image's file, as it is; empty where rows are not separate files. Throws InputError naming
  /// it when it cannot be read.
  virtual std::string read_file(std::size_t row) const;
  /// The file that the row was made from, relative to the source; empty where rows are not separate
  /// files. It has at most file_name_bytes() bytes.
  virtual std::string file_name(std::size_t) const { return {}; }
  virtual std::size_t file_name_bytes() const { return 0; }
  /// Identifies these images: their number and a hash of names, labels and classes.
  virtual std::string fingerprint() const;
  /// Throws InputError naming a file of the source that has changed since it was opened.
  virtual void require_unchanged() const {}
  /// What the user should know about what was taken and what was left out.
  const std::vector<std::string>& remarks() const { return remarks_; }

 protected:
  std::vector<std::string> remarks_;
};

/// The binary version of CIFAR-10 (data_batch_*.bin, test_batch.bin) or CIFAR-100 (train.bin,
/// test.bin; the fine labels): Krizhevsky, "Learning multiple layers of features from tiny images",
/// 2009.
std::unique_ptr<Source> open_cifar10(const std::filesystem::path& folder);
std::unique_ptr<Source> open_cifar100(const std::filesystem::path& folder);

/// MNIST-style IDX files, gzipped or not: one pair of images (idx3-ubyte) and labels (idx1-ubyte)
/// with "train" in their names and, if there is one, a pair with "t10k" or "test". Held in memory.
std::unique_ptr<Source> open_idx(const std::filesystem::path& folder);

/// What to pack.
struct SourceSpec {
  std::string kind;  ///< one of source_kinds()
  /// One folder, one list, or tars; see expand_patterns().
  std::vector<std::filesystem::path> files;
  /// The same for validation, if it is elsewhere; not for kinds that have it in their folder.
  std::vector<std::filesystem::path> validation_files;
  std::filesystem::path root;         ///< of a list's paths; empty: the list's own folder
  std::filesystem::path class_names;  ///< a file with one in each line; empty: by the labels
  /// False, for "classes", "list" and "tar": images without labels, all of one class. A folder's
  /// may lie at any depth, "classes" may also be one image's file, and a line of a list is a path.
  bool labelled = true;
  /// For images without labels: a CSV file with a line for each, whose header names a column of
  /// paths, below the source, or of files, and the labels or values in the others.
  std::filesystem::path targets;
  std::optional<data::Task> targets_task;  ///< nullopt: labels where all numbers are 0 and 1
  data::ExternalSpec external,
      validation_external;  ///< of "shards" that are other programs' HDF5 files
};

std::vector<std::string> source_kinds();

/// The kind of the file or folder at `path`, judged by its name and content.
std::string guess_source(const std::filesystem::path& path);

/// Whether this is a file that is named as an image.
bool is_image_file(const std::filesystem::path& path);

/// Expands names with wildcards and braces ("train-*.tar", "train-{000..063}.tar") to the matching
/// files, in order of name. Names without either stay as they are. Throws InputError naming a
/// pattern that matches no file.
std::vector<std::filesystem::path> expand_patterns(const std::vector<std::string>& names);

/// Sources of single files ("classes", "list", "tar") are indexed before they are opened, so that a
/// million names are looked up once and no rank keeps them in memory. index_count() gives the
/// number of pieces; any rank may index any piece. index_piece() writes the index of one piece to
/// `folder` and unpacks what it must. The index of an unchanged tar is kept. has_index(): it is
/// there, and whole. 0 pieces: another kind.
///
/// "classes": FOLDER/<class>/**.jpg|jpeg|png, or two such trees in FOLDER/train and FOLDER/val (or
/// FOLDER/test). "list": a path and a label in each line. "tar": plain, gzip or zstd; the label is
/// in KEY.cls or KEY.json next to KEY.jpg, as in WebDataset, or follows from the folders as in the
/// folder that the tar was made of.
std::size_t index_count(const SourceSpec& spec);
bool has_index(std::size_t piece, const std::filesystem::path& folder);
void index_piece(const SourceSpec& spec, std::size_t piece, const std::filesystem::path& folder);

/// Opens the source. `folder`: where its pieces are, if it has any. Classes are sorted by name;
/// labels that are numbers are used as numbers. CIFAR and IDX are also looked for in the sub-folder
/// that the original archives unpack to (cifar-10-batches-bin, ...).
std::unique_ptr<Source> open_source(const SourceSpec& spec, const std::filesystem::path& folder);

}  // namespace lockstep::pack
