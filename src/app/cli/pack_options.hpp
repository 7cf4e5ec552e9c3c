#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/cli/command_line.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/pack/pack_job.hpp"

namespace lockstep::app {

/// How images are to be stored: what of an ImageForm its options do not say themselves.
struct FormOptions {
  std::string resize;
  std::optional<int> quality;
};
void add_form_options(Arguments app, FormOptions& options, data::ImageForm& form);
/// Throws InputError naming options that contradict each other.
void settle_form(const FormOptions& options, data::ImageForm& form);

/// Whether a path is that folder, or would be in it.
bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer);

/// The options of `lockstep pack`.
struct PackOptions {
  std::vector<std::string> sources, validation_sources;
  FormOptions form;
  std::filesystem::path out;
  std::string element;
  std::optional<double> held_out;
  double default_held_out = 0.1;
  std::optional<std::size_t> training_rows, validation_rows;
  bool repack = false, shuffle = false, force = false;
  config::Config external;  ///< the keys for reading HDF5 files of other programs
  pack::SourceSpec source;  ///< the kind may be given; resolve_pack_options() sets the rest
  pack::PackSpec spec;
};

void add_pack_options(Arguments app, PackOptions& options);

/// What the options ask for. Throws InputError naming options that contradict each other and files
/// that do not exist.
pack::PackRequest resolve_pack_options(PackOptions& options);

}  // namespace lockstep::app
