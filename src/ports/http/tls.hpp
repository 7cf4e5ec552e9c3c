#pragma once

#include <microhttpd.h>

#include <vector>

#include "lockstep/base/http.hpp"

namespace lockstep::http {

/// Adds what makes a daemon that is started with MHD_USE_TLS speak HTTPS. The library reads `tls`
/// only while it starts.
void add_tls(const HttpTls& tls, std::vector<MHD_OptionItem>& options);

}  // namespace lockstep::http
