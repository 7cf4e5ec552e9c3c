#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/arguments.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/pack_plan.hpp"

namespace lockstep::app {

/// What `lockstep pack` was asked for.
struct PackOptions {
  std::vector<std::string> sources, validation_sources;
  std::string resize;
  std::filesystem::path out;
  std::optional<double> held_out;
  double default_held_out = 0.1;
  std::optional<std::size_t> training_rows, validation_rows;
  std::optional<int> quality;
  bool repack = false, shuffle = false, force = false;
  config::Config external;  ///< the keys that say how other programs' HDF5 files are read
  data::SourceSpec source;  ///< the kind may be given; the rest is settled
  data::PackSpec spec;
};

void add_pack_options(Arguments app, PackOptions& options);

/// Fills `source` and `spec` from what was given. Throws InputError naming options that contradict
/// each other and files that are not there.
void resolve_pack_options(PackOptions& options);

/// Opens the source; `index`: where its index is, if it has one. Settles what is held out.
std::unique_ptr<data::Source> open_pack_source(PackOptions& options,
                                               const std::filesystem::path& index);

/// What of the command the shards follow from, one "key = value" a line.
std::string describe_pack(const PackOptions& options);

}  // namespace lockstep::app
