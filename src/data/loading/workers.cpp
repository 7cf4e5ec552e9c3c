#include "lockstep/data/loading/workers.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "lockstep/base/clock.hpp"
#include "lockstep/data/loading/row_reader.hpp"

namespace lockstep::data {
namespace {

constexpr double trial_s = 0.15;

// The rank's rows from where the loader begins, one after the other, then again from the start.
class RowOrder {
 public:
  RowOrder(const LoaderSpec& spec)
      : sampler_(spec.sampler), begin_(spec.batch % sampler_.batches()) {}
  std::size_t next(std::uint64_t epoch) {
    const std::size_t turn = taken_++, each = sampler_.replica_batch();
    const BatchPart part = sampler_.part((begin_ + turn / each) % sampler_.batches());
    const std::size_t inside = part.rows == 0 ? 0 : turn % each % part.rows;
    return sampler_.row(epoch, part.first_position + inside);
  }

 private:
  const Sampler sampler_;
  const std::size_t begin_;
  std::atomic<std::size_t> taken_{0};
};

/// RowOrder a second with that many threads.
double rate_of(std::size_t workers, const DataSet& data, const LoaderSpec& spec, RowOrder& rows) {
  std::mutex mutex;
  std::exception_ptr error;
  std::atomic<std::size_t> done{0};
  const double start = now_s();
  const auto work = [&] {
    try {
      if (spec.bind_worker) spec.bind_worker();
      RowReader reader(data, spec.augment);
      std::vector<std::uint8_t> image(reader.row_bytes());
      do {
        reader.read(spec.epoch, rows.next(spec.epoch), image);
        ++done;
      } while (now_s() - start < trial_s);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < workers; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  return static_cast<double>(done) / (now_s() - start);
}

}  // namespace

WorkerChoice choose_workers(const DataSet& data, const LoaderSpec& spec, std::size_t most) {
  if (most <= 1) return {};
  RowOrder rows(spec);
  rate_of(1, data, spec, rows);  // a warm-up, not measured
  std::vector<WorkerChoice> tried;
  for (std::size_t workers = 1;; workers = std::min(2 * workers, most)) {
    const double rate = rate_of(workers, data, spec, rows);
    const bool helps = tried.empty() || rate > 1.1 * tried.back().rows_per_s;
    tried.push_back({workers, rate, 0});
    if (!helps || workers == most) break;
  }
  const auto faster = [](const WorkerChoice& a, const WorkerChoice& b) {
    return a.rows_per_s < b.rows_per_s;
  };
  const double best = std::max_element(tried.begin(), tried.end(), faster)->rows_per_s;
  WorkerChoice choice = *std::find_if(tried.begin(), tried.end(), [&](const WorkerChoice& one) {
    return one.rows_per_s >= 0.95 * best;
  });
  choice.rows_per_s_of_one = tried.front().rows_per_s;
  return choice;
}

}  // namespace lockstep::data
