#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "folder_fixture.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/data/pack.hpp"

namespace lockstep::test {

/// What came of a pack.
struct Packed {
  data::ChannelSums sums;
  std::size_t skipped = 0;  ///< images
};

/// What `ranks` ranks do, one after the other.
inline Packed pack_as(std::size_t ranks, const data::Source& source, const data::PackSpec& spec,
                      const std::filesystem::path& out) {
  using namespace data;
  const DataSetInfo info = packed_info(source, spec);
  const auto plan = plan_shards(source, spec, packed_row_bytes(source, spec, info));
  PackFolder folder(out, false);
  Packed packed{ChannelSums(info.channels)};
  std::vector<std::unique_ptr<Packer>> packers;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<ShardPlan> own;
    for (std::size_t s = rank; s < plan.size(); s += ranks) own.push_back(plan[s]);
    packers.push_back(
        std::make_unique<Packer>(source, spec, info, PackFolder::partial(out), std::move(own)));
    while (!packers.back()->finished()) packers.back()->advance(0.001);
    packed.sums.add(packers.back()->training_sums());
    packed.skipped += packers.back()->skipped().size();
  }
  for (const auto& packer : packers) packer->normalise(packed.sums.mean(), packed.sums.stddev());
  folder.commit();
  return packed;
}

/// Every file below `folder` by its name there.
inline std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = read_text(entry.path());
  }
  return files;
}

}  // namespace lockstep::test
