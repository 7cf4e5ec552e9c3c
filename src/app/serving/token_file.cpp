#include "app/serving/token_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"

namespace lockstep::app {

std::string read_token(const std::filesystem::path& path) {
  constexpr std::size_t shortest = 16;
  const auto file = open_regular(path);
  require(bool{file}, fmt::format("{}: {}", path.string(), std::strerror(errno)));
  struct stat facts = {};
  check(::fstat(file.get(), &facts) == 0, "fstat of an open file");
  require(facts.st_uid == ::geteuid(), fmt::format("{}: belongs to another user", path.string()));
  require(
      (facts.st_mode & (S_IRWXG | S_IRWXO)) == 0,
      fmt::format("{}: is not for its owner alone: chmod 600 {}", path.string(), path.string()));
  std::array<char, 4096> bytes;
  const ssize_t got = ::read(file.get(), bytes.data(), bytes.size());
  require(got >= 0, fmt::format("{}: {}", path.string(), std::strerror(errno)));
  std::string token(bytes.data(), static_cast<std::size_t>(got));
  token.resize(std::min(token.find_first_of("\r\n"), token.size()));
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  require(token.size() >= shortest && printable,
          fmt::format("{}: its first line is not a token of at least {} letters without blanks",
                      path.string(), shortest));
  return token;
}

}  // namespace lockstep::app
