#include "ports/http/listening.hpp"

// The library judges a certificate and its key when it starts, so a daemon that does not listen is
// started to ask it. It tells its reason to its log only.

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::http {
namespace {

using Socket = Descriptor;

sockaddr_un address_at(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  require(
      !path.empty() && path.size() < sizeof address.sun_path,
      fmt::format("{}: the path of a socket has 1 to {} bytes", path, sizeof address.sun_path - 1));
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

void remove_left_over(const std::string& path, const sockaddr_un& address) {
  struct stat there = {};
  if (::lstat(path.c_str(), &there) != 0) return;
  require(S_ISSOCK(there.st_mode), fmt::format("{}: is there, and is not a socket", path));
  const Socket probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool answers =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  require(!answers && errno == ECONNREFUSED, fmt::format("{}: another server listens there", path));
  ::unlink(path.c_str());
}

}  // namespace

LocalSocket::LocalSocket(const std::string& path) : path_(path) {
  const sockaddr_un address = address_at(path);
  remove_left_over(path, address);
  Socket made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The mode of the socket becomes that of the path, so it is never open to others.
  const bool listens =
      made && ::fchmod(made.get(), S_IRUSR | S_IWUSR) == 0 &&
      ::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::listen(made.get(), SOMAXCONN) == 0;
  require(listens, fmt::format("{}: nothing can listen there: {}", path, std::strerror(errno)));
  listening_ = std::move(made);
}

LocalSocket::~LocalSocket() { ::unlink(path_.c_str()); }

}  // namespace lockstep::http

namespace lockstep {
namespace {

/// Keeps the first line that the library says.
[[gnu::format(printf, 2, 0)]] void keep_reason(void* reason, const char* form, va_list values) {
  auto& kept = *static_cast<std::string*>(reason);
  if (!kept.empty()) return;
  char line[500];
  std::vsnprintf(line, sizeof line, form, values);
  kept = line;
  kept.resize(std::min(kept.find('\n'), kept.size()));
}

MHD_Result answer_none(void*, MHD_Connection*, const char*, const char*, const char*, const char*,
                       size_t*, void**) {
  return MHD_NO;
}

}  // namespace

void http::add_tls(const HttpTls& tls, std::vector<MHD_OptionItem>& options) {
  const auto text = [](const std::string& pem) { return const_cast<char*>(pem.c_str()); };
  options.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0,
                     const_cast<char*>("NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2")});
  options.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, text(tls.key)});
  options.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, text(tls.certificate)});
}

void require_usable(const HttpTls& tls) {
  std::vector<MHD_OptionItem> options;
  http::add_tls(tls, options);
  options.push_back({MHD_OPTION_END, 0, nullptr});
  std::string reason;
  const Owned<MHD_Daemon*, MHD_stop_daemon> daemon(
      MHD_start_daemon(MHD_USE_TLS | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0, nullptr,
                       nullptr, answer_none, nullptr, MHD_OPTION_EXTERNAL_LOGGER, keep_reason,
                       &reason, MHD_OPTION_ARRAY, options.data(), MHD_OPTION_END));
  require(bool{daemon}, fmt::format("{}: cannot be used for TLS: {}", tls.files,
                                    reason.empty() ? "the library refuses" : reason));
}

}  // namespace lockstep
