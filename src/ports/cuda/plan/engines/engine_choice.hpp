#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::cuda {

/// Which engine was the fastest for which convolution, in a file that all ranks and all starts
/// share. Each line is complete and has a checksum: lines that are torn, of another version, or of
/// another site count as absent, and what they said is measured again. A write keeps what other
/// processes have added, and replaces the file at once. The file only saves time: if it cannot be
/// read or written, the first failure is a warning that names it, and choices last as long as this
/// object.
class PlanCache {
 public:
  /// Reads the file, if it exists. `site`: what a choice depends on in addition to the request: the
  /// device and the libraries. Without `writes`, save() leaves the file to others.
  PlanCache(std::filesystem::path file, std::string site, bool writes = true);
  const std::filesystem::path& file() const { return file_; }
  /// The name of the engine; empty if none is known.
  std::string find(const std::string& request) const;
  /// Also writes the file now and then, so that a start which is cut off has not measured in vain.
  void keep(const std::string& request, const std::string& engine);
  /// Writes what keep() has added since the last call that could write it.
  void save();

 private:
  using Key = std::pair<std::string, std::string>;  // site and request
  std::map<Key, std::string> read() const;
  void write() const;
  void warn(const Error& failure);

  std::filesystem::path file_;
  std::string site_;
  bool writes_;
  std::map<Key, std::string> engines_, added_;
  double saved_s_ = now_s();
  bool warned_ = false;
};

/// The engines that a library offers for one request, best first by its own estimate.
struct EngineList {
  std::size_t count = 0;
  std::function<std::string(std::size_t)> name;
  std::function<bool(std::size_t)> builds;  ///< false: this engine cannot do it
  /// Measures an engine that was just built; nothing if it cannot run here.
  std::function<std::optional<double>(std::size_t)> seconds;
};

/// How many engines of a list are measured.
constexpr std::size_t most_measured = 8;

/// The number of the engine that the cache names, if the list has it and it builds. Else the
/// fastest of the first most_measured that build, which the cache then keeps. Nothing if none could
/// be measured.
std::optional<std::size_t> choose_engine(PlanCache& cache, const std::string& request,
                                         const EngineList& engines);

}  // namespace lockstep::cuda
