#include "lockstep/observe/course.hpp"

#include <variant>

namespace lockstep::observe {
namespace {

struct Taker {
  Course& course;

  void operator()(const StartRecord& start) const {
    course.starts.push_back(start);
    course.end.reset();
  }
  void operator()(const ResumeRecord& resume) const { course.resumes.push_back(resume); }
  void operator()(const StepRecord& step) const { course.steps = step.step; }
  void operator()(const EpochRecord& epoch) const { course.epochs.push_back(epoch); }
  void operator()(const RanksRecord&) const {}
  void operator()(const CheckpointRecord&) const {}
  void operator()(const LedgerRecord&) const {}
  void operator()(const EndRecord& end) const { course.end = end; }
};

}  // namespace

Course read_course(const std::filesystem::path& metrics) {
  Course course;
  if (!std::filesystem::exists(metrics)) return course;
  course.strange = read_records(metrics, [&](const Record& record) {
    std::visit([&](const auto& one) { course.newest_ms = one.time_ms; }, record);
    std::visit(Taker{course}, record);
    return true;
  });
  return course;
}

}  // namespace lockstep::observe
