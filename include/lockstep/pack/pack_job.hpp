#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/comm/control.hpp"
#include "lockstep/pack/pack_plan.hpp"
#include "lockstep/pack/source/shapes.hpp"
#include "lockstep/pack/source/source.hpp"

namespace lockstep::pack {

/// What to pack, how, and where to.
struct PackRequest {
  SourceSpec source;
  ShapesSpec shapes;               ///< if the source is generated ("shapes")
  PackSpec spec;                   ///< all but what is held out
  std::optional<double> held_out;  ///< share of each class; an error if the source has a test split
  double default_held_out = 0;     ///< if the source has no test split
  std::filesystem::path out;       ///< gets train/ and val/
  bool force = false;              ///< replace the data set in `out`
  std::string options;             ///< all that determines the shards, one "key = value" per line
};

/// Throws InputError where a data set is in `out` and `force` is off, or where anything but shards
/// is in the way.
void require_room(const std::filesystem::path& out, bool force);

/// Packs on all ranks together, or resumes what was interrupted; `resolve` says on each rank what
/// was asked for. What fails on one rank is thrown on all, as InputError if the input was at fault.
/// False if `stop` was true on some rank before the end: finished shards are kept, and said.
bool run_pack(comm::Control& control, const std::function<PackRequest()>& resolve,
              const std::function<bool()>& stop);

}  // namespace lockstep::pack
