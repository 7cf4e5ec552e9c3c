#include "lockstep/base/http.hpp"

#include <fmt/format.h>
#include <sched.h>

#include "lockstep/base/text/numbers.hpp"

namespace lockstep {

void let_others_finish() {
  const sched_param none = {};
  ::sched_setscheduler(0, SCHED_BATCH, &none);
}

HttpSpec parse_listen(const std::string& text, const std::string& key) {
  HttpSpec spec;
  const std::size_t colon = text.rfind(':');
  if (colon != std::string::npos) spec.host = text.substr(0, colon);
  if (spec.host.size() > 1 && spec.host.front() == '[' && spec.host.back() == ']')
    spec.host = spec.host.substr(1, spec.host.size() - 2);
  else
    require(spec.host.find(':') == std::string::npos,
            fmt::format("{}: '{}': an IPv6 address is written in [ ]", key, text));
  require(!spec.host.empty(), fmt::format("{}: '{}' has no address before its port", key, text));
  spec.port = static_cast<std::uint16_t>(
      parse_count(text.substr(colon == std::string::npos ? 0 : colon + 1), key, 1, 65535));
  return spec;
}

}  // namespace lockstep
