#include "lockstep/base/files/appending_file.hpp"

#include <cerrno>
#include <chrono>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep {
namespace {

constexpr std::size_t most_buffered_bytes = 64 * 1024;
constexpr std::size_t most_waiting_bytes = std::size_t{16} << 20;  // minutes of most runs
constexpr std::chrono::seconds most_buffered{1};
constexpr std::chrono::seconds patience{1};  // with a file system, at the end of the process

}  // namespace

void AppendingFile::Target::write(std::string_view more) {
  if (write_all(file.get(), more.data(), more.size()) < more.size())
    fail_by_system(path.string() + " cannot be written", errno);
  bytes += more.size();
}

AppendingFile::AppendingFile(Spec spec)
    : spec_(std::move(spec)),
      name_(spec_.target.path.string()),
      in_file_(spec_.target.bytes),
      thread_([this] { run(); }) {}

AppendingFile::~AppendingFile() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (error_ && !told_) log::error(why_);
}

void AppendingFile::run() {
  const auto to_do = [this] { return wanted_ > on_disk_ || !buffer_.empty(); };
  std::unique_lock lock(mutex_);
  while (!error_) {
    changed_.wait(lock, [&] { return ending_ || to_do(); });
    changed_.wait_for(lock, most_buffered, [this] {
      return ending_ || ended_ || wanted_ > on_disk_ || buffer_.size() >= most_buffered_bytes;
    });
    if (ending_ && !to_do()) return;
    std::string bytes = std::exchange(buffer_, {});
    taken_ = bytes.size();
    const std::uint64_t flushes = wanted_;
    const bool to_disk = flushes > on_disk_;
    lock.unlock();
    std::exception_ptr failure;
    std::string why;
    try {
      write(bytes, to_disk);
    } catch (const std::exception& reason) {
      failure = std::current_exception();
      why = reason.what();
    }
    lock.lock();
    in_file_ = spec_.target.bytes;
    taken_ = 0;
    on_disk_ = flushes;
    if (failure) fail(failure, why);
    changed_.notify_all();
  }
}

void AppendingFile::write(std::string& bytes, bool to_disk) {
  spec_.prepare(spec_.target, bytes);
  spec_.target.write(bytes);
  if (to_disk && ::fdatasync(spec_.target.file.get()) != 0 && errno != EINVAL)
    fail_by_system(spec_.target.path.string() + " cannot be synchronised", errno);
}

void AppendingFile::append(std::string_view bytes) {
  const bool first = buffer_.empty();
  buffer_ += bytes;
  if (first || buffer_.size() >= most_buffered_bytes) changed_.notify_all();
}

void AppendingFile::fail(const std::exception_ptr& error, const std::string& why) {
  buffer_.clear();
  if (error_) return;
  error_ = error;
  why_ = why;
  told_ = told_ || spec_.failed;
  if (spec_.failed) spec_.failed(why);
}

void AppendingFile::rethrow() {
  if (!error_ || spec_.failed) return;
  told_ = true;
  std::rethrow_exception(error_);
}

bool AppendingFile::add(std::string_view bytes, bool last) {
  std::unique_lock lock(mutex_);
  const auto has_room = [this] { return error_ || buffer_.size() < most_waiting_bytes; };
  if (!has_room() && spec_.failed)
    fail(std::make_exception_ptr(Error("")), name_ + " could not be written for long");
  if (!has_room() && spec_.before_wait) spec_.before_wait();
  changed_.wait(lock, has_room);
  if (ended_ || (error_ && told_)) return false;
  rethrow();
  append(bytes);
  ended_ = last;
  return true;
}

std::uint64_t AppendingFile::request_flush() {
  const std::scoped_lock lock(mutex_);
  changed_.notify_all();
  return ++wanted_;
}

void AppendingFile::flush() {
  const std::uint64_t mine = request_flush();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || on_disk_ >= mine; });
  rethrow();
}

void AppendingFile::end(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  if (std::exchange(ended_, true) || error_) return;
  append(bytes);
  told_ = true;  // the process ends for another reason, which is told
  changed_.notify_all();
  changed_.wait_for(lock, patience, [&] { return error_ || taken_ + buffer_.size() == 0; });
}

std::uint64_t AppendingFile::bytes() const {
  const std::scoped_lock lock(mutex_);
  return in_file_ + taken_ + buffer_.size();
}

}  // namespace lockstep
