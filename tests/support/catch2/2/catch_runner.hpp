#pragma once

// How a test program runs and reports with Catch2 2; the folder 3 says the same for Catch2 3. The
// Makefile chooses one of them.

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <ostream>
#include <string>

namespace lockstep::test {

/// Catch2's console reporter, without what it says before and after all cases.
class QuietReporter : public Catch::ConsoleReporter {
 public:
  explicit QuietReporter(const Catch::ReporterConfig& config) : ConsoleReporter(config) {}

  void testRunStarting(const Catch::TestRunInfo& info) override {
    StreamingReporterBase::testRunStarting(info);
    currentTestRunInfo.used = true;  // no banner above the first failure
  }
  void testGroupEnded(const Catch::TestGroupStats&) override {}
  void testRunEnded(const Catch::TestRunStats&) override {}

 protected:
  std::ostream& out() { return stream; }
  static const std::string& name_of(const Catch::TestCaseStats& stats) {
    return stats.testInfo.name;
  }
};

inline int run_session(int argc, char** argv) {
  Catch::Session session;
  session.configData().useColour = Catch::UseColour::No;
  return session.run(argc, argv);
}

}  // namespace lockstep::test
