// The library judges a certificate and its key when it starts, so a daemon that does not listen is
// started to ask it. It tells its reason to its log only.
#include "ports/http/tls.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep {
namespace {

/// Keeps the first line that the library says.
void keep_reason(void* reason, const char* form, va_list values) {
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
