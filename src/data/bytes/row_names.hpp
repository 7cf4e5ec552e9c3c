#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "lockstep/base/files/h5.hpp"

namespace lockstep::data {

inline constexpr const char* file_names_item = "file_names";  ///< of a shard; optional
inline constexpr std::size_t longest_file_name = 256;         ///< bytes

/// The names of the files that a shard's rows were made from, where the shard has them. It opens
/// the shard when it is first asked. The caller holds no Session.
/// **Thread safety:** all methods.
class RowNames {
 public:
  explicit RowNames(std::filesystem::path path) : path_(std::move(path)) {}
  ~RowNames();
  RowNames(RowNames&&) = default;
  std::string of(std::size_t row);  ///< empty if there are no names, or they cannot be read
  std::size_t bytes();              ///< room for each; 0: there are no names

 private:
  void open();
  std::filesystem::path path_;
  bool opened_ = false;
  h5::File file_;
  h5::Data names_;
  std::size_t bytes_ = 0, rows_ = 0;
};

}  // namespace lockstep::data
