#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::serve {

/// The columns of predictions, which follow from the network, the rows and the options.
struct PredictionColumns {
  std::size_t top = 1;            ///< classes of a row, the likeliest first; 0: another task
  std::size_t probabilities = 0;  ///< of labels; 0: another task
  std::size_t values = 0;         ///< numbers in the training set's units; 0: another task
  std::size_t logits = 0;         ///< the network's classes; 0: not kept
  std::size_t features = 0;       ///< numbers that the last layer reads; 0: not kept
  bool labels = false;
  std::size_t name_bytes = 0;  ///< the most that a row's name has; 0: rows have no names
};

/// A row that could not be read.
struct UnreadRow {
  std::uint64_t row = 0;
  std::string reason;
};

/// What a network says of some consecutive rows. A file of predictions has a data set for each
/// member, with the member's name; data/README.md lists them.
struct Predictions {
  PredictionColumns columns;
  std::vector<std::uint64_t> row;       ///< [rows], number in the data set
  std::vector<std::string> name;        ///< [rows], of the image's file
  std::vector<std::int32_t> label;      ///< [rows]; -1: not known
  std::vector<std::int32_t> top_class;  ///< [rows, top]; -1: unread, or its outputs are not numbers
  std::vector<float> top_probability;   ///< [rows, top]; NaN with class -1
  std::vector<float> probability;       ///< [rows, probabilities]; NaN where unread or no number
  std::vector<float> value;             ///< [rows, values]; NaN as well
  std::vector<float> logits;            ///< [rows, logits]
  std::vector<float> features;          ///< [rows, features]
  std::vector<UnreadRow> unread;        ///< ascending

  std::size_t rows() const { return row.size(); }
  /// Calls visit(name, values, numbers of a row) for each column of numbers that there is.
  static void numbers(auto& self, auto&& visit) {
    const PredictionColumns& has = self.columns;
    visit("row", self.row, std::size_t{1});
    if (has.labels) visit("label", self.label, std::size_t{1});
    if (has.top > 0) visit("top_class", self.top_class, has.top);
    if (has.top > 0) visit("top_probability", self.top_probability, has.top);
    if (has.probabilities > 0) visit("probability", self.probability, has.probabilities);
    if (has.values > 0) visit("value", self.value, has.values);
    if (has.logits > 0) visit("logits", self.logits, has.logits);
    if (has.features > 0) visit("features", self.features, has.features);
  }
};

/// What a part is of.
struct PartOf {
  std::string job;  ///< identifies all that the predictions follow from
  std::size_t first = 0, rows = 0;
};

/// Writes a file of HDF5 with these rows, unless it exists: false then. Before the HDF5 part are
/// 512 bytes that say what it is of, and its checksum. Throws as fail_by_system(), naming the file;
/// no half file is left.
bool publish_part(const std::filesystem::path& path, const Predictions& part,
                  const std::string& job);

/// Why the file cannot be this part; nothing where it is, whole and unaltered.
std::optional<std::string> why_no_part(const std::filesystem::path& path, const PartOf& part);

/// Throws InputError naming the file and what is wrong with it.
Predictions read_part(const std::filesystem::path& path, const PredictionColumns& columns);

/// Writes one file with the rows of all parts, in their order; false where it exists. Its bytes
/// follow from the parts and the job alone. Memory holds one part at a time. Throws as
/// publish_part().
bool publish_merged(const std::filesystem::path& path,
                    const std::vector<std::filesystem::path>& parts,
                    const PredictionColumns& columns, const PartOf& all,
                    const std::vector<std::string>& classes);

/// The same as CSV: row, file, label, then class and probability for each of the likeliest classes;
/// classes by name, and empty where a row has none. Of labels, the names of those that are likelier
/// than not, after semicolons, and each probability; of values, each value. Control characters in
/// names are written as \x0a, so that a line is a row; the merged file has them as they are.
bool publish_csv(const std::filesystem::path& path, const std::vector<std::filesystem::path>& parts,
                 const PredictionColumns& columns, const std::vector<std::string>& classes);

/// Throws InputError naming the file where it has not these columns, or another number of rows.
void require_whole_csv(const std::filesystem::path& path, std::size_t rows,
                       const PredictionColumns& columns, const std::vector<std::string>& classes);

/// What a file of predictions says in total.
struct PredictionCounts {
  std::uint64_t rows = 0;
  std::uint64_t labelled = 0, right = 0;  ///< rows of a known label; whose likeliest class it is
  std::uint64_t unread = 0, no_numbers = 0;
};
/// Throws InputError naming the file where it is not whole, or of other rows or another job.
PredictionCounts count_predictions(const std::filesystem::path& merged,
                                   const PredictionColumns& columns, const PartOf& all);

}  // namespace lockstep::serve
