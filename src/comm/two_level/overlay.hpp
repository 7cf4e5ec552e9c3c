#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/waits/absence.hpp"
#include "lockstep/device/host_stream.hpp"

namespace lockstep::comm {

/// The stream of a communicator that works above another one. Its operations call the verbs of the
/// one below when it is their turn: in the order of this stream, which is the same on all ranks.
/// **Invariants:** an operation touches its memory only when the earlier ones on the same memory
/// have left the stream.
class Overlay {
 public:
  explicit Overlay(Communicator& below) : below_(below) {}
  device::HostStream& stream() { return stream_; }
  void progress();
  /// Puts an operation into the stream that makes these calls below, on `memory`; any memory if it
  /// has no data.
  void forward(Elements memory, std::function<void()> calls);

  class Operation : public device::Pending {
   public:
    Operation(Overlay& overlay, Elements memory);
    ~Operation() override;

   protected:
    bool owns_memory() const;  ///< no earlier operation is still on it
    bool has_turn() const { return overlay_.issued_ == number_; }
    /// Makes calls of the communicator below. REQUIRES: has_turn(). Once, also if there are none.
    void issue(const std::function<void()>& calls);
    bool arrived() const { return arrived_->done(); }  ///< what was issued has finished

   private:
    Overlay& overlay_;
    std::uint64_t number_;
    std::unique_ptr<device::Event> arrived_;
  };

 private:
  struct Use {
    std::uint64_t number;
    Elements memory;
  };
  Communicator& below_;
  std::deque<Use> uses_;                ///< of the operations in the stream
  std::uint64_t put_ = 0, issued_ = 0;  ///< operations since the start
  device::HostStream stream_;           // last: its operations use the others
};

/// A communicator with all verbs of the one below, through an overlay's stream. Groups that are
/// split off share the overlay.
class OverlaidCommunicator : public Communicator {
 public:
  OverlaidCommunicator(std::shared_ptr<Overlay> overlay, std::shared_ptr<Communicator> below)
      : Communicator(below->activity), overlay_(std::move(overlay)), below_(std::move(below)) {}

  int rank() const override { return below_->rank(); }
  int world() const override { return below_->world(); }
  device::Stream& network() override { return overlay_->stream(); }
  void begin_step(std::uint64_t step) override { below_->begin_step(step); }
  std::unique_ptr<WaitDeadline> make_deadline(std::string_view name,
                                              std::vector<int> awaited) override {
    return below_->make_deadline(name, std::move(awaited));
  }
  std::unique_ptr<Communicator> split(std::optional<int> colour, int key,
                                      std::string_view name) override;
  std::unique_ptr<Communicator> channel(std::string_view name) override {
    return below_->channel(name);
  }
  void all_reduce(Elements data, Reduction reduction, std::string_view name,
                  device::Stream& stream) override;
  void reduce_scatter(Elements data, Reduction reduction, std::string_view name,
                      device::Stream& stream) override;
  void all_gather(Elements data, std::string_view name, device::Stream& stream) override;
  void broadcast(Elements data, int root, std::string_view name, device::Stream& stream) override;
  void send(Elements data, int to, std::string_view name, device::Stream& stream) override;
  void receive(Elements data, int from, std::string_view name, device::Stream& stream) override;
  void together(const std::function<void()>& calls) override;
  void progress() override { overlay_->progress(); }

 protected:
  Overlay& overlay() { return *overlay_; }

 private:
  using Verb = std::function<void(Communicator&, Elements, std::string_view, device::Stream&)>;
  void forward(Elements data, std::string_view name, device::Stream& stream, Verb verb);

  std::shared_ptr<Overlay> overlay_;
  std::shared_ptr<Communicator> below_;                  // its operations may outlive this
  std::vector<std::function<void()>>* batch_ = nullptr;  ///< of together()
};

}  // namespace lockstep::comm
