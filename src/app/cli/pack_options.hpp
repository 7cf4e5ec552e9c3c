#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/arguments.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/pack/pack_plan.hpp"

namespace lockstep::app {

/// The options of `lockstep pack`.
struct PackOptions {
  std::vector<std::string> sources, validation_sources;
  std::string resize;
  std::filesystem::path out;
  std::optional<double> held_out;
  double default_held_out = 0.1;
  std::optional<std::size_t> training_rows, validation_rows;
  std::optional<int> quality;
  bool repack = false, shuffle = false, force = false;
  config::Config external;  ///< the keys for reading HDF5 files of other programs
  data::SourceSpec source;  ///< the kind may be given; resolve_pack_options() sets the rest
  data::PackSpec spec;
};

void add_pack_options(Arguments app, PackOptions& options);

/// Fills `source` and `spec` from the options. Throws InputError naming options that contradict
/// each other and files that do not exist.
void resolve_pack_options(PackOptions& options);

/// Opens the source and decides what is held out. `index`: where its index is, if it has one.
std::unique_ptr<data::Source> open_pack_source(PackOptions& options,
                                               const std::filesystem::path& index);

/// The options that determine the shards, one "key = value" per line.
std::string describe_pack(const PackOptions& options);

}  // namespace lockstep::app
