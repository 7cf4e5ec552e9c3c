#include "ports/tcp/meeting/handshake.hpp"

#include <fmt/core.h>
#include <sys/random.h>

#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/text/numbers.hpp"

namespace lockstep::tcp {
namespace {

constexpr std::string_view title = "lockstep meeting 1\n";
constexpr std::size_t tag_bytes = sizeof(std::uint64_t);

std::string text_of(const Nonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

Nonce nonce_of(std::string_view text) {
  Nonce nonce;
  std::memcpy(nonce.data(), text.data(), nonce.size());
  return nonce;
}

/// `from` prevents that one side replays a tag of the other.
std::string tag_of(const Key& secret, char from, const Nonce& host, const Nonce& peer,
                   std::string_view text) {
  const std::uint64_t tag =
      siphash(secret, from + text_of(host) + text_of(peer) + std::string(text));
  return {reinterpret_cast<const char*>(&tag), tag_bytes};
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
    lines.emplace_back(text.substr(0, end));
  return lines;
}

}  // namespace

Nonce new_nonce() {
  Nonce nonce;
  check(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()),
        "getrandom");
  return nonce;
}

std::string make_greeting(const Nonce& host) { return std::string(title) + text_of(host); }

std::optional<Nonce> read_greeting(std::string_view message) {
  if (!message.starts_with(title) || message.size() != title.size() + Nonce().size())
    return std::nullopt;
  return nonce_of(message.substr(title.size()));
}

std::string make_hello(const Key& secret, const Nonce& host, const Nonce& peer,
                       const Hello& hello) {
  const std::string text =
      fmt::format("{}\n{}\n{}\n{}\n", hello.job, hello.rank, hello.world, hello.node);
  return text_of(peer) + tag_of(secret, 'p', host, peer, text) + text;
}

std::optional<HeardHello> read_hello(const Key& secret, const Nonce& host,
                                     std::string_view message) {
  constexpr std::size_t head = Nonce().size() + tag_bytes;
  if (message.size() < head) return std::nullopt;
  const Nonce peer = nonce_of(message);
  const std::string_view text = message.substr(head);
  if (message.substr(peer.size(), tag_bytes) != tag_of(secret, 'p', host, peer, text))
    return std::nullopt;
  const std::vector<std::string> lines = lines_of(text);
  if (lines.size() != 4) return std::nullopt;
  const auto rank = whole_number<int>(lines[1]), world = whole_number<int>(lines[2]);
  if (!rank || !world) return std::nullopt;
  return HeardHello{peer, {lines[0], *rank, *world, lines[3]}};
}

std::string make_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                        std::string_view refusal) {
  const std::string text = refusal.empty() ? "y" : "n" + std::string(refusal);
  return tag_of(secret, 'h', host, peer, text) + text;
}

std::optional<std::string> read_answer(const Key& secret, const Nonce& host, const Nonce& peer,
                                       std::string_view message) {
  if (message.size() <= tag_bytes) return std::nullopt;
  const std::string_view text = message.substr(tag_bytes);
  if (message.substr(0, tag_bytes) != tag_of(secret, 'h', host, peer, text)) return std::nullopt;
  return std::string(text.substr(1));
}

}  // namespace lockstep::tcp
