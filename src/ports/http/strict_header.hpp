#pragma once

#include <microhttpd.h>

#include <map>
#include <string>

namespace lockstep::http {

/// The headers of one request. What a proxy in front might read in another way than the library is
/// wrong: then the next request may begin elsewhere than the proxy thinks.
class StrictHeader {
 public:
  /// `path`: decoded; `version`: as the library's handler gets them.
  StrictHeader(MHD_Connection* connection, const char* path, const char* version);
  /// One sentence; empty where nothing is wrong.
  const std::string& fault() const { return fault_; }
  std::map<std::string, std::string> take() { return std::move(headers_); }

 private:
  static MHD_Result take_header(void* self, MHD_ValueKind, const char* name, const char* value);
  void add(const std::string& name, const char* value);
  void judge_lengths();

  std::map<std::string, std::string> headers_;  ///< names in lower case
  std::string fault_;
};

/// For the library: decodes a path in place. One with a NUL stays as it is, and has a fault then.
size_t decode_path(void*, MHD_Connection*, char* path);

}  // namespace lockstep::http
