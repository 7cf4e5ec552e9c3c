#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"

namespace lockstep::cluster {
namespace {

std::string given(const EnvLookup& env, std::string_view name) { return env(name).value_or(""); }

/// HOST:PORT; an IPv6 address may be in brackets.
void take_address(const std::string& text, std::string_view name, MeetingAddress& address) {
  const std::size_t colon = std::min(text.rfind(':'), text.size());
  address.host = text.substr(0, colon);
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  const int port = colon < text.size() ? whole_number<int>(text.substr(colon + 1)).value_or(0) : 0;
  require(
      port > 0 && port < 65536 && !address.host.empty(),
      fmt::format("{}={}: expected HOST:PORT of rank 0, such as train-0.train:29500", name, text));
  address.port = static_cast<std::uint16_t>(port);
}

/// Reads the file that a user or a Secret gives: it may be a link, and others may read it.
void read_token(MeetingAddress& address) {
  const std::filesystem::path& file = address.token_file;
  const Descriptor handle(open_regular(file));
  if (!handle)
    throw InputError(
        fmt::format("{}: the token cannot be read: {}", file.string(), std::strerror(errno)));
  std::string text(256, '\0');
  text.resize(read_all(handle.get(), text.data(), text.size()));
  const std::string_view token = trimmed(text);
  const bool digits = token.find_first_not_of("0123456789abcdefABCDEF") == token.npos;
  const auto secret = parse_secret(token);
  require(secret.has_value(),
          fmt::format("{}: a token is {} hexadecimal digits, as of openssl rand -hex {}; this file "
                      "has {}",
                      file.string(), 2 * address.token.size(), address.token.size(),
                      token.empty() ? "nothing"
                      : digits      ? counted(token.size(), "digit")
                                    : "other characters"));
  address.token = *secret;
  struct stat facts {};
  if (fstat(handle.get(), &facts) == 0 && (facts.st_mode & 077) != 0)
    address.note = fmt::format(
        "{}: others may read the token (mode {:04o}); anyone who has it and "
        "reaches rank 0 may join",
        file.string(), facts.st_mode & 07777);
}

}  // namespace

bool meets_by_address(const EnvLookup& env, const RankInfo& info) {
  return info.world > 1 &&
         (!given(env, "LOCKSTEP_MEET").empty() || info.authority == Authority::declared ||
          info.authority == Authority::trainer);
}

MeetingPlace address_place(const EnvLookup& env, const RankInfo& info) {
  MeetingAddress address;
  const std::string meet = given(env, "LOCKSTEP_MEET");
  const std::string master = given(env, "PET_MASTER_ADDR");
  const bool trainer = info.authority == Authority::trainer;
  if (!meet.empty())
    take_address(meet, "LOCKSTEP_MEET", address);
  else if (trainer && !master.empty())
    take_address(master + ":" + env("PET_MASTER_PORT").value_or("29500"),
                 "PET_MASTER_ADDR and _PORT", address);
  address.token_file = given(env, "LOCKSTEP_TOKEN_FILE");
  require(!address.host.empty() && !address.token_file.empty(),
          fmt::format("{} declares {} ranks, but not {}: give --meet HOST:PORT (LOCKSTEP_MEET), "
                      "where rank 0 will be, and --token-file FILE (LOCKSTEP_TOKEN_FILE)",
                      trainer ? "PET_NNODES" : "the world", info.world,
                      address.host.empty() ? "where they meet" : "the token that they share"));
  if (trainer)
    if (const auto each = whole_number<int>(given(env, "PET_NPROC_PER_NODE")); each.value_or(1) > 1)
      throw InputError(
          fmt::format("PET_NPROC_PER_NODE={}: one process of lockstep is one rank. Start "
                      "{} in each pod with LOCKSTEP_RANK and LOCKSTEP_WORLD",
                      *each, *each));
  read_token(address);
  MeetingPlace place;
  place.job = "a meeting by address";  // its ranks may write the host in several ways
  place.ports = {address.port};
  place.node = info.host;
  place.address = std::move(address);
  return place;
}

std::string describe_service_links(const EnvLookup& env) {
  const std::string port = given(env, "LOCKSTEP_PORT");
  if (!port.starts_with("tcp://") && !port.starts_with("udp://")) return "";
  return fmt::format(
      "LOCKSTEP_PORT={} is Kubernetes' link to a service of this name: it is not read", port);
}

}  // namespace lockstep::cluster
