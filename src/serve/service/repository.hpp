#pragma once

// Models by name, each in the newest version that works. Its file is looked at from time to time;
// when it has changed, it is read on the thread that looks, and compiled and tried on the thread
// that computes, in small pieces between batches. Only then it takes the old version's place.
// Requests hold the version that they began with. What cannot be read or used is tried again, ever
// less often: the reason may have passed, on a file system of a network or with a change of its
// mode.

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/files/file_stamp.hpp"
#include "serve/service/version.hpp"

namespace lockstep::serve {

/// **Thread safety:** any thread may call all methods but load(), which the one that computes
/// calls, and look(), which one other thread calls.
class Repository {
 public:
  /// The references must outlive it.
  Repository(const ServeSpec& spec, const std::vector<ModelSource>& sources,
             backend::Backend& backend, Batcher& batcher);
  ~Repository();
  /// Loads all models. Throws InputError naming one that cannot be.
  void load();
  /// Loads models again whose files have changed; with `all`, every one.
  void look(bool all);
  /// The model's version of this number, or of any if that is empty. Throws RequestError 404.
  std::shared_ptr<const Version> find(const std::string& name, const std::string& number) const;
  std::vector<std::shared_ptr<const Version>> all() const;  ///< by name
  std::shared_ptr<Statistics> statistics(const std::string& name) const;
  /// Why a newer file of the model is not served; empty where there is none.
  std::string problem(const std::string& name) const;

 private:
  struct Entry;
  class Loading;
  void look_at(Entry& entry);
  void advance(const std::shared_ptr<Loading>& loading);
  void publish(Entry& entry, std::shared_ptr<const Version> version);

  const ServeSpec& spec_;
  backend::Backend& backend_;
  Batcher& batcher_;
  void note_problem(Entry& entry, const std::exception& error);
  mutable std::mutex mutex_;  // of the entries' versions and problems
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

}  // namespace lockstep::serve
