#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  std::size_t classes() const { return input_.classes.size(); }
  /// Writes the row of an image that came as a JPEG or PNG file, as validation prepares it. Throws
  /// RequestError 400 naming `what`: another format, damaged, too many pixels, another size.
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
  const StoredForm stored_;
  const std::size_t most_pixels_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<data::ImagePreparer>> idle_;  // preparers keep buffers
};

}  // namespace lockstep::serve
