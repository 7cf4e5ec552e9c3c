#include "app/scaling/compare.hpp"
#include "app/scaling/questions.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::app {

Command add_scaling(Arguments root) {
  struct Options {
    std::vector<std::string> runs;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  Arguments app = root.add_command(
      "scaling",
      "Scaling studies: plan, run, fit, predict, report (jobs/SCALING.md). With runs' folders: "
      "compare their speed");
  app.add("runs", options->runs, "two or more runs' folders to compare");
  app.add_flag("--json", options->json, "print JSON");
  const std::vector<Command> steps = {add_scaling_plan(app), add_scaling_run(app),
                                      add_scaling_fit(app), add_scaling_predict(app),
                                      add_scaling_report(app)};
  return {app, [options, steps](Launch& launch) {
            for (const Command& step : steps)
              if (step.app.given()) return step.run(launch);
            require(!options->runs.empty(),
                    "scaling: name runs to compare, or one of plan, run, fit, predict, report");
            return compare_runs(options->runs, options->json);
          }};
}

}  // namespace lockstep::app
