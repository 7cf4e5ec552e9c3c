#include "app/serving/secrets.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep::app {
namespace {

enum class For { owner, all };

/// A small file's text.
std::string read_secret(const std::filesystem::path& path, For whom) {
  constexpr std::size_t longest = 1 << 20;
  const auto file = open_regular(path);
  require(bool{file}, fmt::format("{}: {}", path.string(), std::strerror(errno)));
  struct stat facts = {};
  check(::fstat(file.get(), &facts) == 0, "fstat of an open file");
  if (whom == For::owner) {
    require(facts.st_uid == ::geteuid(), fmt::format("{}: belongs to another user", path.string()));
    require((facts.st_mode & (S_IRWXG | S_IRWXO)) == 0,
            fmt::format("{0}: is not for its owner alone: chmod 600 {0}", path.string()));
  }
  std::string text(longest + 1, '\0');
  text.resize(read_all(file.get(), text.data(), text.size()));
  require(text.size() > longest || errno == 0,
          fmt::format("{}: {}", path.string(), std::strerror(errno)));
  require(text.size() <= longest,
          fmt::format("{}: is larger than {} bytes", path.string(), std::size_t{longest}));
  return text;
}

std::string read_pem(const std::filesystem::path& path, const char* what, For whom) {
  std::string text = read_secret(path, whom);
  const std::size_t begins = text.find("-----BEGIN ");
  require(
      begins != text.npos && text.find(what, begins) != text.npos && text.find('\0') == text.npos,
      fmt::format("{}: holds no {} in the form PEM", path.string(), what));
  return text;
}

}  // namespace

std::string read_token(const std::filesystem::path& path) {
  constexpr std::size_t shortest = 16;
  std::string token = read_secret(path, For::owner);
  token.resize(std::min(token.find_first_of("\r\n"), token.size()));
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  require(token.size() >= shortest && printable,
          fmt::format("{}: its first line is not a token of at least {} letters without blanks",
                      path.string(), shortest));
  return token;
}

HttpTls read_tls(const std::filesystem::path& certificate, const std::filesystem::path& key) {
  HttpTls tls{.certificate = read_pem(certificate, "CERTIFICATE", For::all),
              .key = read_pem(key, "PRIVATE KEY", For::owner),
              .files = fmt::format("{} and {}", certificate.string(), key.string())};
  require_usable(tls);
  return tls;
}

}  // namespace lockstep::app
