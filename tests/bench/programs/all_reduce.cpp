// Times lockstep's all-reduce against MPI's own on a gradient in buckets:
//   mpirun -n 2 all_reduce [megabytes of the whole = 102] [of a bucket = 8] [rounds = 15]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/control_plane.hpp"
#include "lockstep/comm/worlds/world.hpp"
#include "ports/mpi/call.hpp"

namespace {

using lockstep::mpi::must;

struct Gradient {
  std::vector<float> values;
  std::size_t bucket;  // floats
  std::size_t buckets() const { return (values.size() + bucket - 1) / bucket; }
  float* data(std::size_t b) { return values.data() + b * bucket; }
  std::size_t size(std::size_t b) const { return std::min(bucket, values.size() - b * bucket); }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

/// The time of the slowest rank for one round.
double time_ms(const std::function<void()>& reduce) {
  must(MPI_Barrier(MPI_COMM_WORLD));
  const double start = lockstep::now_ms();
  reduce();
  double ms = lockstep::now_ms() - start;
  must(MPI_Allreduce(MPI_IN_PLACE, &ms, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
  return ms;
}

void mpi_blocking(Gradient& gradient) {
  for (std::size_t b = 0; b < gradient.buckets(); ++b)
    must(MPI_Allreduce(MPI_IN_PLACE, gradient.data(b), static_cast<int>(gradient.size(b)),
                       MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
}

void mpi_nonblocking(Gradient& gradient) {
  std::vector<MPI_Request> requests(gradient.buckets(), MPI_REQUEST_NULL);
  for (std::size_t b = 0; b < gradient.buckets(); ++b)
    must(MPI_Iallreduce(MPI_IN_PLACE, gradient.data(b), static_cast<int>(gradient.size(b)),
                        MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[b]));
  must(MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
}

void sum(lockstep::comm::Communicator& communicator, Gradient& gradient, std::size_t b) {
  communicator.all_reduce(lockstep::comm::elements(gradient.data(b), gradient.size(b)),
                          lockstep::comm::Reduction::sum, "bucket", communicator.network());
}

void lockstep_stream(lockstep::comm::Communicator& communicator, Gradient& gradient) {
  for (std::size_t b = 0; b < gradient.buckets(); ++b) sum(communicator, gradient, b);
  communicator.network().synchronize();
}

/// Arithmetic in the cache, like that of backward's kernels: about `ms` on an idle core.
float compute(double ms) {
  static std::vector<float> values(4096, 1.0f);
  const double end = lockstep::now_ms() + ms;
  while (lockstep::now_ms() < end)
    for (float& value : values) value = value * 0.999f + 0.001f;
  return values[0];
}

/// A backward pass of equal steps, each followed by progress(); every few steps a bucket becomes
/// ready. The reduction's work adds to the time, and so does what remains at the end.
void hidden(lockstep::comm::Communicator& communicator, Gradient& gradient, double ms,
            bool reduce) {
  constexpr std::size_t steps = 160;
  for (std::size_t step = 0, bucket = 0; step < steps; ++step) {
    compute(ms / steps);
    for (; reduce && bucket < gradient.buckets() * (step + 1) / steps; ++bucket)
      sum(communicator, gradient, bucket);
    communicator.progress();
  }
  communicator.network().synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::comm::World world(argc, argv);
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 102;
  const double bucket_megabytes = argc > 2 ? std::atof(argv[2]) : 8;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 15;
  Gradient gradient{std::vector<float>(static_cast<std::size_t>(megabytes * 1e6 / 4)),
                    static_cast<std::size_t>(bucket_megabytes * 1e6 / 4)};
  lockstep::comm::ControlPlane plane(world.make_fabric(60), 60);
  const auto communicator = plane.connect(60);

  const double backward_ms = 5 * megabytes;

  // Interleaved, so that all run under the same load of the machine.
  std::vector<double> ours, blocking, nonblocking, with, without;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(time_ms([&] { lockstep_stream(*communicator, gradient); }));
    blocking.push_back(time_ms([&] { mpi_blocking(gradient); }));
    nonblocking.push_back(time_ms([&] { mpi_nonblocking(gradient); }));
    without.push_back(time_ms([&] { hidden(*communicator, gradient, backward_ms, false); }));
    with.push_back(time_ms([&] { hidden(*communicator, gradient, backward_ms, true); }));
  }
  if (world.facts().rank != 0) return 0;
  fmt::print("{} ranks, {} MB in buckets of {} MB, median (best) of {} rounds\n",
             world.facts().world, megabytes, bucket_megabytes, rounds);
  const auto report = [&](const char* name, const std::vector<double>& times) {
    const double ms = median(times);
    fmt::print("{:<15}{:8.2f} ms ({:.2f}) {:6.1f} GB/s\n", name, ms, best(times), megabytes / ms);
  };
  report("lockstep", ours);
  report("MPI_Allreduce", blocking);
  report("MPI_Iallreduce", nonblocking);
  fmt::print("during {} ms of backward: {:.2f} ms added (best {:.2f})\n", backward_ms,
             median(with) - median(without), best(with) - best(without));
}
