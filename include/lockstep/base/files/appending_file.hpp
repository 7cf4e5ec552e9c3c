#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "lockstep/base/owned.hpp"

namespace lockstep {

/// A file that grows. A thread writes what is added at most a second after it came, so that a file
/// system that does not answer does not keep the user waiting. The first failure ends the file:
/// what is added later is dropped. The bytes pass from a buffer to the thread, which alone touches
/// the file and holds no lock meanwhile.
/// **Thread safety:** any thread may call anything; the hooks may not.
class AppendingFile {
 public:
  struct Target {
    std::filesystem::path path;
    Descriptor file = {};
    std::uint64_t bytes = 0;            ///< its length
    void write(std::string_view more);  ///< throws as fail_by_system()
  };
  struct Spec {
    Target target;
    /// Called by the thread, without a lock, before it writes these bytes or, where there are none,
    /// flushes: may open or replace the target, and change the bytes. What it throws is a failure.
    std::function<void(Target& target, std::string& bytes)> prepare;
    /// Called once, with what ended the file. Without it, add() throws that once, flush() each
    /// time, and the destructor logs what no one knows.
    std::function<void(std::string_view why)> failed = {};
    std::function<void()> before_wait = {};  ///< called by add(), each time before it waits
  };
  explicit AppendingFile(Spec spec);
  ~AppendingFile();  ///< writes what was added
  AppendingFile(const AppendingFile&) = delete;
  AppendingFile& operator=(const AppendingFile&) = delete;

  /// False where nothing more is taken. Nothing follows the `last`. Where 16 MiB have not been
  /// written yet, it waits, or, where there is `failed`, the file ends.
  bool add(std::string_view bytes, bool last = false);
  void flush();                   ///< waits until everything is in the file and on the disk
  std::uint64_t request_flush();  ///< the same without waiting; returns its number
  /// For a thread that ends the process: adds the last bytes, and returns after a second at most,
  /// also where the file system does not answer. Throws nothing, and later no one is told an error.
  void end(std::string_view bytes);
  std::uint64_t bytes() const;  ///< length, including what is not written yet

 private:
  void run();
  void write(std::string& bytes, bool to_disk);
  // REQUIRES: the lock.
  void append(std::string_view bytes);
  void fail(const std::exception_ptr& error, const std::string& why);
  void rethrow();

  Spec spec_;               ///< only the thread uses its target
  const std::string name_;  ///< for messages

  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::string buffer_;
  std::uint64_t in_file_ = 0, taken_ = 0;   ///< bytes: written, and passed to the thread
  std::uint64_t wanted_ = 0, on_disk_ = 0;  ///< flushes that were asked for, and done
  std::exception_ptr error_;
  std::string why_;      ///< its text
  bool told_ = false;    ///< someone knows the error
  bool ended_ = false;   ///< nothing follows the last
  bool ending_ = false;  ///< by the destructor
  std::thread thread_;   // last: it uses all the others
};

}  // namespace lockstep
