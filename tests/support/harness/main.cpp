// The one place where Catch2 itself is compiled, with the reporter whose output tests/run reads:
// `TEST name`, then the output of the case, then `PASS name` or `FAIL name`.

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <cstdio>
#include <string>

#include "tests/support/harness/harness.hpp"
#include "tests/support/harness/watchdog.hpp"

namespace {

using namespace lockstep;

/// Catch2's console reporter, with a verdict for each case in place of a summary.
class HarnessReporter : public Catch::ConsoleReporter {
 public:
  explicit HarnessReporter(const Catch::ReporterConfig& config) : ConsoleReporter(config) {}
  static std::string getDescription() { return "one line for each verdict, for tests/run"; }

  void testRunStarting(const Catch::TestRunInfo& info) override {
    StreamingReporterBase::testRunStarting(info);
    currentTestRunInfo.used = true;  // no banner above the first failure
  }

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    ConsoleReporter::testCaseStarting(info);
    running_ = info.name;
    if (test::speaks()) print("TEST", info.name);
    test::begin_case(info.name);
  }

  void sectionStarting(const Catch::SectionInfo& info) override {
    ConsoleReporter::sectionStarting(info);
    test::watch(running_);
  }

  void fatalErrorEncountered(Catch::StringRef) override { dying_ = true; }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ConsoleReporter::testCaseEnded(stats);
    stream << std::flush;
    std::fflush(stdout);
    if (dying_) return test::dying();
    const bool passed = test::end_case(stats.totals.assertions.allOk());
    test::stop_watching();
    if (test::speaks()) print(passed ? "PASS" : "FAIL", stats.testInfo.name);
  }

  void testGroupEnded(const Catch::TestGroupStats&) override {}
  void testRunEnded(const Catch::TestRunStats&) override {}

 private:
  void print(const char* word, const std::string& name) {
    stream << word << ' ' << name << std::endl;
    std::fflush(stdout);
  }

  std::string running_;
  bool dying_ = false;
};
CATCH_REGISTER_REPORTER("harness", HarnessReporter)

}  // namespace

int main(int argc, char** argv) {
  return test::run_process(
      argc, argv, [](int count, char** words) { return Catch::Session().run(count, words); });
}
