#include "app/start/meeting_options.hpp"

#include <cstdlib>
#include <map>
#include <string>

#include "lockstep/base/text/numbers.hpp"

namespace lockstep::app {
namespace {

constexpr std::uint64_t most_ranks = 1 << 20;

/// Values of variables, by name. One for the process, as they are.
std::map<std::string, std::string>& values() {
  static std::map<std::string, std::string> all;
  return all;
}

void add_one(Arguments app, const char* option, const char* variable, const char* kind,
             const char* help) {
  app.add_taken(
         option, [variable](const std::string& value) { values()[variable] = value; }, help)
      .called(kind);
}

void add_number(Arguments app, const char* option, const char* variable, std::uint64_t low,
                const char* help) {
  app.add_taken(
         option,
         [option, variable, low](const std::string& value) {
           values()[variable] = std::to_string(parse_count(value, option, low, most_ranks));
         },
         help)
      .called("NUMBER")
      .ranges(CountRange{low, most_ranks}.text());
}

}  // namespace

void add_meeting(Arguments app) {
  add_one(app, "--meet", "LOCKSTEP_MEET", "TEXT",
          "HOST:PORT where rank 0 listens and the ranks meet without MPI; needs --token-file");
  add_one(app, "--token-file", "LOCKSTEP_TOKEN_FILE", "FILE",
          "has the secret that ranks share: 32 hexadecimal digits");
  add_number(app, "--rank", "LOCKSTEP_RANK", 0, "of this process, where no launcher says it");
  add_number(app, "--world", "LOCKSTEP_WORLD", 1, "how many ranks there are");
}

void take_meeting() {
  for (const auto& [name, value] : values()) ::setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace lockstep::app
