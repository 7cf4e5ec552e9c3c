// Why the choice of engines is a file. Measuring (`--tune true`) takes seconds for each network,
// and two starts may measure differently. The file keeps the choice for all ranks and later starts
// on the same device and libraries.
#include "ports/cuda/plan/engines/engine_choice.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <sstream>
#include <system_error>
#include <utility>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::cuda {

namespace {

constexpr const char* first_line = "lockstep plans 1";

std::string sealed(const std::string& text) {
  return fmt::format("{:08x}\t{}\n", crc32c(text.data(), text.size()), text);
}

/// A line's fields after its checksum; nothing if it is damaged.
std::optional<std::array<std::string, 3>> fields_of(const std::string& line) {
  const std::size_t end_of_sum = line.find('\t');
  if (end_of_sum == std::string::npos) return std::nullopt;
  std::string text = line.substr(end_of_sum + 1);
  if (sealed(text) != line + '\n') return std::nullopt;
  std::array<std::string, 3> fields;
  std::istringstream in(text);
  for (std::string& field : fields)
    if (!std::getline(in, field, '\t')) return std::nullopt;
  return fields;
}

}  // namespace

PlanCache::PlanCache(std::filesystem::path file, std::string site, bool writes)
    : file_(std::move(file)), site_(std::move(site)), writes_(writes) {
  try {
    engines_ = read();
  } catch (const Error& failure) {
    warn(failure);
  }
}

std::map<PlanCache::Key, std::string> PlanCache::read() const {
  std::map<Key, std::string> found;
  std::error_code none;
  if (!std::filesystem::exists(file_, none)) return found;
  std::istringstream in(read_text(file_));
  std::string line;
  if (!std::getline(in, line) || line != first_line) return found;
  while (std::getline(in, line))
    if (const auto fields = fields_of(line)) found[{(*fields)[0], (*fields)[1]}] = (*fields)[2];
  return found;
}

std::string PlanCache::find(const std::string& request) const {
  const auto found = engines_.find({site_, request});
  return found == engines_.end() ? "" : found->second;
}

void PlanCache::keep(const std::string& request, const std::string& engine) {
  constexpr double most_s = 10;
  engines_[{site_, request}] = added_[{site_, request}] = engine;
  if (now_s() - saved_s_ > most_s) save();
}

void PlanCache::save() {
  if (added_.empty() || !writes_) return;
  saved_s_ = now_s();
  try {
    write();
    added_.clear();
  } catch (const Error& failure) {
    warn(failure);
  }
}

void PlanCache::write() const {
  std::map<Key, std::string> all = read();
  for (const auto& [key, engine] : added_) all[key] = engine;
  std::string text = std::string(first_line) + '\n';
  for (const auto& [key, engine] : all)
    text += sealed(fmt::format("{}\t{}\t{}", key.first, key.second, engine));
  if (file_.has_parent_path()) make_directories(file_.parent_path());
  write_text_atomically(file_, text);
}

void PlanCache::warn(const Error& failure) {
  if (std::exchange(warned_, true) || !writes_) return;
  log::warn(fmt::format(
      "{}; without {} (--tune-cache) the next start measures the engines of convolutions again",
      failure.what(), file_.string()));
}

std::optional<std::size_t> choose_engine(PlanCache& cache, const std::string& request,
                                         const EngineList& engines) {
  const std::string known = cache.find(request);
  for (std::size_t i = 0; !known.empty() && i < engines.count; ++i)
    if (engines.name(i) == known && engines.builds(i)) return i;
  std::optional<std::size_t> best;
  double best_s = 0;
  std::size_t measured = 0;
  for (std::size_t i = 0; i < engines.count && measured < most_measured; ++i) {
    if (!engines.builds(i)) continue;
    ++measured;
    const std::optional<double> seconds = engines.seconds(i);
    if (!seconds || std::isnan(*seconds) || (best && *seconds >= best_s)) continue;
    best = i;
    best_s = *seconds;
  }
  if (best) cache.keep(request, engines.name(*best));
  return best;
}

}  // namespace lockstep::cuda
