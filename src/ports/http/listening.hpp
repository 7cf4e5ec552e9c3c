#pragma once

#include <microhttpd.h>

#include <string>
#include <vector>

#include "lockstep/base/http.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep::http {

/// A Unix socket that listens at a path, for its owner alone; destroyed, it removes the path. One
/// that a server which is gone has left there is replaced. Throws InputError naming the path when
/// another server listens there, or nothing can.
class LocalSocket {
 public:
  explicit LocalSocket(const std::string& path);
  ~LocalSocket();
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  /// Gives the descriptor away, which then is the caller's to close.
  int release() { return listening_.release(); }

 private:
  std::string path_;
  Descriptor listening_;
};

/// Adds what makes a daemon that is started with MHD_USE_TLS speak HTTPS. The library reads `tls`
/// only while it starts.
void add_tls(const HttpTls& tls, std::vector<MHD_OptionItem>& options);

}  // namespace lockstep::http
