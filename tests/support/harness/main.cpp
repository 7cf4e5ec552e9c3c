// The one place where Catch2 itself is compiled, with the reporter whose output tests/run reads:
// `TEST name`, then the output of the case, then `PASS name` or `FAIL name`.

#include <catch_runner.hpp>

#include <cstdio>
#include <string>

#include "tests/support/harness/harness.hpp"
#include "tests/support/harness/watchdog.hpp"

namespace {

using namespace lockstep;

/// Catch2's console reporter, with a verdict for each case in place of a summary.
class HarnessReporter : public test::QuietReporter {
 public:
  using test::QuietReporter::QuietReporter;
  static std::string getDescription() { return "one line for each verdict, for tests/run"; }

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    QuietReporter::testCaseStarting(info);
    running_ = info.name;
    if (test::speaks()) print("TEST", info.name);
    test::begin_case(info.name);
  }

  void sectionStarting(const Catch::SectionInfo& info) override {
    QuietReporter::sectionStarting(info);
    test::watch(running_);
  }

  void fatalErrorEncountered(Catch::StringRef) override { dying_ = true; }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    QuietReporter::testCaseEnded(stats);
    out() << std::flush;
    std::fflush(stdout);
    if (dying_) return test::dying();
    const bool passed = test::end_case(stats.totals.assertions.allOk());
    test::stop_watching();
    if (test::speaks()) print(passed ? "PASS" : "FAIL", name_of(stats));
  }

 private:
  void print(const char* word, const std::string& name) {
    out() << word << ' ' << name << std::endl;
    std::fflush(stdout);
  }

  std::string running_;
  bool dying_ = false;
};
CATCH_REGISTER_REPORTER("harness", HarnessReporter)

}  // namespace

int main(int argc, char** argv) { return test::run_process(argc, argv, test::run_session); }
