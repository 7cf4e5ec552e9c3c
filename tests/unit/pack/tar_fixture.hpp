#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep::test {

/// A POSIX header with its checksum.
inline std::string tar_header(const std::string& name, std::size_t bytes, char type = '0',
                              const std::string& prefix = {}) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  char size[13];
  std::snprintf(size, sizeof size, "%011zo", bytes);
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(124, size);
  put(148, "        ");
  header[156] = type;
  put(257, std::string("ustar\00000", 8));
  put(345, prefix);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char checksum[8];
  std::snprintf(checksum, sizeof checksum, "%06o", sum);
  put(148, std::string(checksum, 7) + ' ');
  return header;
}

inline std::string tar_member(const std::string& name, const std::string& content, char type = '0',
                              const std::string& prefix = {}) {
  return tar_header(name, content.size(), type, prefix) + content +
         std::string((512 - content.size() % 512) % 512, '\0');
}

inline std::string tar_end() { return std::string(1024, '\0'); }

}  // namespace lockstep::test
