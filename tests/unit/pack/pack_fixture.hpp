#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/files/files.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "pack/pack_folder.hpp"
#include "pack/packer.hpp"
#include "tests/support/folder_fixture.hpp"

namespace lockstep::test {
using namespace lockstep::data;
using namespace lockstep::pack;

/// Opens a source of files; its index is made in `index`.
inline std::unique_ptr<pack::Source> open_files(const pack::SourceSpec& spec,
                                                const std::filesystem::path& index) {
  std::filesystem::create_directories(index);
  for (std::size_t piece = 0; piece < pack::index_count(spec); ++piece)
    pack::index_piece(spec, piece, index);
  return pack::open_source(spec, index);
}

inline std::unique_ptr<pack::Source> open_class_folders(const std::filesystem::path& folder) {
  pack::SourceSpec spec;
  spec.kind = "classes";
  spec.files = {folder};
  const Folder index("index");
  return open_files(spec, index.path);
}

/// Runs what `ranks` ranks do, one after the other.
inline pack::Totals pack_as(std::size_t ranks, const pack::Source& source,
                            const pack::PackSpec& spec, const std::filesystem::path& out) {
  using namespace data;
  const DataSetInfo info = packed_info(source, spec);
  const auto plan = plan_shards(source, spec, packed_row_bytes(source, spec, info));
  PackFolder folder(out, false);
  folder.resume("");
  const std::filesystem::path partial = PackFolder::partial(out);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<ShardPlan> own;
    for (std::size_t s = rank; s < plan.size(); s += ranks) own.push_back(plan[s]);
    Packer packer(source, spec, info, partial, std::move(own));
    while (!packer.finished()) packer.advance(0.001);
  }
  const Totals all = read_totals(partial, plan, info);
  for (const ShardPlan& shard : plan)
    if (std::filesystem::exists(partial / shard.file))
      set_normalisation(partial / shard.file, all.sums.mean(), all.sums.stddev());
  folder.commit();
  return all;
}

/// The content of every file below `folder`, by its relative name.
inline std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(folder).string()] = read_text(entry.path());
  }
  return files;
}

}  // namespace lockstep::test
