#include "ports/http/local_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

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
