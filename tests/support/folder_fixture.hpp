#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/error.hpp"

namespace lockstep::test {

/// A temporary directory of the test, removed with this object.
struct Folder {
  std::filesystem::path path;
  explicit Folder(const std::string& name = "test")
      : path(std::filesystem::temp_directory_path() / ("lockstep-" + name + "-XXXXXX")) {
    std::string made = path;
    check(::mkdtemp(made.data()) != nullptr, made);
    path = made;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// The entries of a directory, in order of name.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Writes the file, replacing an old one, and makes the directory if need be.
inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace lockstep::test
