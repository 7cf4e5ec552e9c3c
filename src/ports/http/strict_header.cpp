#include "ports/http/listening.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string_view>

#include <fmt/format.h>

namespace lockstep::http {
namespace {

constexpr std::string_view escaped_nul = "%00";

/// Of which a request has one at most. Others become one list, as RFC 9110 has it.
constexpr std::array<std::string_view, 9> single = {"authorization",
                                                    "content-encoding",
                                                    "content-length",
                                                    "content-type",
                                                    "expect",
                                                    "host",
                                                    "inference-header-content-length",
                                                    "origin",
                                                    "transfer-encoding"};

bool is_token(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         (c != '\0' && std::strchr("!#$%&'*+-.^_`|~", c) != nullptr);
}

/// The library 0.9.75 has a line in its memory as it came, with a NUL in place of its end. What
/// follows that is another NUL, or the line's LF. A letter there is the next line's, which a bare
/// LF began, or came after a NUL. Newer libraries refuse both. At least the empty line follows.
bool is_cut(const char* text) { return is_token(text[std::strlen(text) + 1]); }

/// The library 0.9.75 takes a folded line for more of the name, which then is elsewhere in its
/// memory, or reaches into the value. Newer libraries refuse such lines.
bool is_folded(const char* name, const char* value) {
  constexpr unsigned first_newer = 0x00097600;
  constexpr std::ptrdiff_t longest_line = 1 << 20;
  const char* colon = name + std::strlen(name);
  if (MHD_VERSION >= first_newer) return false;
  if (std::less<>{}(value, colon + 1) || value - colon > longest_line) return true;
  return !std::all_of(colon + 1, value, [](char c) { return c == ' ' || c == '\t'; });
}

bool is_control(char c) { return c != '\t' && std::iscntrl(static_cast<unsigned char>(c)) != 0; }

}  // namespace

StrictHeader::StrictHeader(MHD_Connection* connection, const char* path, const char* version) {
  if (std::string_view(path).find(escaped_nul) != std::string_view::npos)
    fault_ = "the path has a NUL";
  if (is_cut(version)) fault_ = "a line does not end with CR and LF";
  MHD_get_connection_values(connection, MHD_HEADER_KIND, take_header, this);
  if (fault_.empty()) judge_lengths();
}

MHD_Result StrictHeader::take_header(void* self, MHD_ValueKind, const char* name,
                                     const char* value) {
  auto& header = *static_cast<StrictHeader*>(self);
  if (value != nullptr && is_folded(name, value)) header.fault_ = "a header is folded";
  header.add(name, value == nullptr ? "" : value);
  return MHD_YES;
}

void StrictHeader::add(const std::string& name, const char* value) {
  if (name.empty() || !std::ranges::all_of(name, is_token))
    fault_ = "a header's name has something other than letters before the colon";
  else if (is_cut(value) || std::ranges::any_of(std::string_view(value), is_control))
    fault_ = "a header has a NUL or the like, or does not end with CR and LF";
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto [at, is_new] = headers_.try_emplace(lower, value);
  if (is_new) return;
  if (std::ranges::find(single, lower) != single.end())
    fault_ = fmt::format("the header {} comes twice", lower);
  (at->second += ", ") += value;
}

void StrictHeader::judge_lengths() {
  const auto coding = headers_.find("transfer-encoding");
  if (coding == headers_.end()) return;
  std::string text = coding->second;
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text != "chunked")
    fault_ = "Transfer-Encoding: only 'chunked' is known";
  else if (headers_.contains("content-length"))
    fault_ = "Content-Length next to Transfer-Encoding";
}

size_t decode_path(void*, MHD_Connection*, char* path) {
  const std::string_view text = path;
  return text.find(escaped_nul) == text.npos ? MHD_http_unescape(path) : text.size();
}

}  // namespace lockstep::http
