#pragma once

// How a test program runs and reports with Catch2 3, as the folder 2 has it.

#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/internal/catch_istream.hpp>
#include <catch2/reporters/catch_reporter_console.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

#include <ostream>
#include <string>
#include <utility>

namespace lockstep::test {

/// Nothing may derive from Catch2's console reporter, so this one asks it for each word.
class QuietReporter : public Catch::StreamingReporterBase {
 public:
  explicit QuietReporter(Catch::ReporterConfig&& config)
      : StreamingReporterBase(std::move(config)),
        console_({m_config, Catch::makeStream(""), Catch::ColourMode::None, {}}) {}

  void testRunStarting(const Catch::TestRunInfo& info) override {
    console_.Catch::StreamingReporterBase::testRunStarting(info);
  }
  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    console_.testCaseStarting(info);
  }
  void sectionStarting(const Catch::SectionInfo& info) override { console_.sectionStarting(info); }
  void assertionEnded(const Catch::AssertionStats& stats) override {
    console_.assertionEnded(stats);
  }
  void sectionEnded(const Catch::SectionStats& stats) override { console_.sectionEnded(stats); }
  void testCaseEnded(const Catch::TestCaseStats& stats) override { console_.testCaseEnded(stats); }
  void reportInvalidTestSpec(Catch::StringRef text) override {
    console_.reportInvalidTestSpec(text);
  }
  void testRunEnded(const Catch::TestRunStats&) override {}

 protected:
  std::ostream& out() { return m_stream; }
  static const std::string& name_of(const Catch::TestCaseStats& stats) {
    return stats.testInfo->name;
  }

 private:
  Catch::ConsoleReporter console_;
};

inline int run_session(int argc, char** argv) {
  Catch::Session session;
  session.configData().defaultColourMode = Catch::ColourMode::None;
  session.configData().allowZeroTests = true;  // tests/run finds that nothing ran
  return session.run(argc, argv);
}

}  // namespace lockstep::test
