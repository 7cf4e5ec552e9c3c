#include "lockstep/observe/metrics.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/io.hpp"
#include "lockstep/base/json_text.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep::observe {
namespace {

constexpr std::size_t most_buffered_bytes = 64 * 1024;
constexpr double most_buffered_s = 1;

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw InputError(fmt::format("{} cannot {}: {}", path.string(), what, std::strerror(errno)));
}

/// JSON cannot express a number that is not finite.
std::string mean(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}
std::string share(double value) {
  return std::isfinite(value) ? fmt::format("{:.6f}", value) : "null";
}

}  // namespace

std::string to_json(const StepRecord& r) {
  std::string scale;
  if (r.loss_scale)
    scale = fmt::format(R"("loss_scale":{},"skipped_steps":{},)", r.loss_scale->scale,
                        r.loss_scale->skipped);
  if (r.gradient_norm) scale += fmt::format(R"("gradient_norm":{},)", mean(*r.gradient_norm));
  return fmt::format(
      R"({{"step":{},"epoch":{},"loss":{},"lr":{},{}"data_ms":{:.3f},"forward_ms":{:.3f},)"
      R"("backward_ms":{:.3f},"exposed_comm_ms":{:.3f},"update_ms":{:.3f}}})",
      r.step, r.epoch, mean(r.loss), r.lr, scale, r.times.data_ms, r.times.forward_ms,
      r.times.backward_ms, r.times.exposed_comm_ms, r.times.update_ms);
}

std::string to_json(const EpochRecord& r) {
  std::string validation;
  if (r.validation)
    validation = fmt::format(R"("val_loss":{},"val_top1":{:.6f},"val_top5":{:.6f},)",
                             mean(r.validation->loss), r.validation->top1, r.validation->top5);
  if (r.average)
    validation += fmt::format(R"("ema_loss":{},"ema_top1":{:.6f},"ema_top5":{:.6f},)",
                              mean(r.average->loss), r.average->top1, r.average->top5);
  std::string bad_rows;
  if (!r.bad_rows.empty())
    bad_rows = fmt::format(R"("bad_rows":{},)", json_text(nlohmann::json(r.bad_rows)));
  return fmt::format(R"({{"epoch":{},"last_step":{},"train_loss":{},"train_top1":{},{}{})"
                     R"("images_per_s":{:.1f},"data_ms":{:.3f}}})",
                     r.epoch, r.step, mean(r.train_loss), share(r.train_top1), validation, bad_rows,
                     r.images_per_s, r.data_ms);
}

std::string to_json(const ResumeRecord& r) {
  const nlohmann::ordered_json json = {{"resumed_from_step", r.step}, {"changes", r.changes}};
  return json_text(json);
}

MetricsLog::MetricsLog(std::filesystem::path path, std::uint64_t keep_bytes)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)),
      wrote_s_(now_s()) {
  if (!file_) fail(path_, "be opened for writing");
  struct stat status = {};
  if (::fstat(file_.get(), &status) != 0) fail(path_, "be looked at");
  bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (bytes_ < keep_bytes)
    log::warn(
        fmt::format("{} is shorter than it was when the checkpoint was written ({} of {} "
                    "bytes): earlier lines are lost",
                    path_.string(), bytes_, keep_bytes));
  const bool longer = bytes_ > keep_bytes;
  bytes_ = std::min(bytes_, keep_bytes);
  if (longer && ::ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0) fail(path_, "be cut");
  if (::lseek(file_.get(), 0, SEEK_END) < 0) fail(path_, "be positioned");
}

MetricsLog::~MetricsLog() {
  try {
    write_buffer();
  } catch (const Error& error) {
    if (!broken_) log::error(error.what());
  }
}

void MetricsLog::add(const std::string& json) {
  buffer_ += json;
  buffer_ += '\n';
  bytes_ += json.size() + 1;
  if (buffer_.size() >= most_buffered_bytes || now_s() - wrote_s_ > most_buffered_s) write_buffer();
}

void MetricsLog::flush() {
  write_buffer();
  if (::fdatasync(file_.get()) != 0 && errno != EINVAL) fail(path_, "be synchronised");
}

void MetricsLog::write_buffer() {
  wrote_s_ = now_s();
  const std::size_t done = write_all(file_.get(), buffer_.data(), buffer_.size());
  if (done < buffer_.size()) {
    const int reason = errno;
    buffer_.erase(0, done);  // the destructor's second attempt must not repeat whole lines
    broken_ = true;
    errno = reason;
    fail(path_, "be written");
  }
  buffer_.clear();
}

}  // namespace lockstep::observe
