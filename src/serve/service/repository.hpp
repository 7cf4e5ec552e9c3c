#pragma once

// Models by name, each in the newest version that works. Its file is looked at from time to time;
// when it has changed, it is read on the thread that looks, and compiled and tried on the thread
// that computes, in small pieces between batches. Only then it takes the old version's place.
// Requests hold the version that they began with. What cannot be read or used is tried again, ever
// less often: the reason may have passed, on a file system of a network or with a change of its
// mode.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/files/files.hpp"
#include "lockstep/serve/service/serving.hpp"
#include "serve/batching/batcher.hpp"
#include "serve/stored_form.hpp"

namespace lockstep::serve {

/// One version of a model that is served.
/// **Thread safety:** all methods.
class Version {
 public:
  Version(const ModelSource& source, std::size_t number, const ModelFile& file,
          const ServeSpec& spec);
  const std::string& name() const { return name_; }
  const std::string& number() const { return number_; }  ///< "1", "2", ... since the start
  const std::string& text() const { return text_; }      ///< see ModelSource
  const data::DataSetInfo& input() const { return input_; }
  std::size_t row_bytes() const { return input_.row_bytes(); }
  std::size_t classes() const { return input_.classes.size(); }  ///< or labels, or values
  /// Images may come as files: the network takes plain bytes of 1 or 3 channels.
  bool takes_files() const { return stored_.has_value(); }
  /// Writes the row of an image that came as a JPEG or PNG file, as validation prepares it. Throws
  /// RequestError 400 naming `what`: another format, damaged, too many pixels, another size.
  /// REQUIRES: takes_files().
  void prepare(std::string_view file, const std::string& what, std::span<std::uint8_t> row) const;

  /// About how long prepare() takes for this file, by its header and its length.
  static double cost_s(std::string_view file);

  std::shared_ptr<Lane> lane;  ///< set once, before the version is shared

 private:
  std::unique_ptr<data::ImagePreparer> borrow() const;
  std::string hint(const std::string& fault) const;

  const std::string name_, number_, text_;
  const data::DataSetInfo input_;
  const data::ImageForm form_;
  const std::optional<StoredForm> stored_;
  const std::size_t most_pixels_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<data::ImagePreparer>> idle_;  // preparers keep buffers
};

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
