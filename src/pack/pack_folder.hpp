#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/base/files/work_folder.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/pack/source/source.hpp"

namespace lockstep::pack {

/// The folder that receives a data set, as train/ and val/. Everything is written to partial() and
/// moved by commit(), so that an interrupted pack can resume. A shard is finished when its note
/// exists; a plan says what the shards follow from. One rank makes the PackFolder; it keeps other
/// packs out while it lives.
///
/// Throws InputError
/// - when a data set exists already and `force` is off,
/// - when anything but shards is in the way (force or not),
/// - when another pack is at work, or
/// - when an interrupted pack of another command left a finished shard and `force` is off.
class PackFolder {
 public:
  /// `command`: the part of the command that decides the shards, as lines "key = value".
  PackFolder(std::filesystem::path folder, bool force, std::string command = {});
  /// Removes what is not committed, unless a shard is finished.
  ~PackFolder();
  PackFolder(const PackFolder&) = delete;
  PackFolder& operator=(const PackFolder&) = delete;
  static std::filesystem::path partial(const std::filesystem::path& folder);

  /// True when everything was there and only commit() had been interrupted: it is now complete.
  bool was_complete() const { return was_complete_; }
  /// `images`: what else decides the shards, in the same kind of lines. True when finished shards
  /// of the same plan exist. Throws InputError when there are some of other images.
  bool resume(const std::string& images);
  std::size_t finished_shards() const;
  /// Throws Error when another pack has taken the folder over, since this one showed no life.
  void require_own() const;
  void commit();

 private:
  void take();
  void finish_moves();
  void settle_existing();
  void require_same(const std::string& now) const;

  std::filesystem::path folder_;
  bool force_, created_ = false, was_complete_ = false;
  std::string command_;
  std::unique_ptr<WorkFolder> claim_;
};

inline constexpr double round_s = 0.1;  ///< between two exchanges with the other ranks

/// Writes the index of a source to `folder`, on all ranks together. The ranks share the pieces of
/// the source, so that each is searched and unpacked once. Throws the same error on all ranks.
void share_index(comm::Control& control, const SourceSpec& source,
                 const std::filesystem::path& folder);

}  // namespace lockstep::pack
