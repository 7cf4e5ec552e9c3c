#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace lockstep::data {

/// The folder in which a data set comes to stand, as train/ and val/. Everything is written to
/// partial() and moved by commit(), so that a pack which was interrupted can go on: a shard is
/// finished when its note stands there, and a plan says what the shards follow from. Made by one
/// rank, which keeps other packs out as long as it lives.
///
/// Throws InputError when a data set is there already and `force` is off, when what stands in the
/// way is anything but shards (force or not), when another pack is at work, or when an interrupted
/// pack of another command (and a finished shard of it) is there and `force` is off.
class PackFolder {
 public:
  /// `command`: in lines "key = value", what of the command the shards follow from.
  PackFolder(std::filesystem::path folder, bool force, std::string command = {});
  /// What is not committed goes, unless a shard is finished.
  ~PackFolder();
  PackFolder(const PackFolder&) = delete;
  PackFolder& operator=(const PackFolder&) = delete;
  static std::filesystem::path partial(const std::filesystem::path& folder);

  /// True when all was there and commit() alone had been interrupted: it now is complete.
  bool was_complete() const { return was_complete_; }
  /// `images`: in such lines, what the shards follow from beside the command. True when finished
  /// shards of the same are there. Throws InputError when there are some of other images.
  bool resume(const std::string& images);
  std::size_t finished_shards() const;
  void commit();

 private:
  struct Lock;
  void finish_moves();
  void settle_existing();
  void require_same(const std::string& now) const;

  std::filesystem::path folder_;
  bool force_, created_ = false, was_complete_ = false;
  std::string command_;
  std::unique_ptr<Lock> lock_;
};

}  // namespace lockstep::data
