#include "lockstep/comm/transport.hpp"

#include <utility>

#include "lockstep/comm/worlds/tcp_communicator.hpp"
#include "ports/tcp/mesh/deadline.hpp"

namespace lockstep::tcp {
namespace {

class MeshTransport final : public comm::Transport {
 public:
  MeshTransport(comm::Control& control, comm::TcpSpec spec)
      : spec_(std::move(spec)), mesh_(control, spec_.host, staging_) {}

  std::unique_ptr<comm::Message> send(int to, comm::MessageTag tag, const void* data,
                                      std::size_t bytes) override {
    return mesh_.link(to).send(tag, data, bytes);
  }
  std::unique_ptr<comm::Message> expect(int from, comm::MessageTag tag, void* data,
                                        std::size_t bytes) override {
    return mesh_.link(from).expect(tag, data, bytes);
  }
  std::unique_ptr<comm::Message> take(int from, comm::MessageTag tag, std::size_t bytes) override {
    return mesh_.link(from).expect(tag, nullptr, bytes);
  }
  bool progress() override { return mesh_.move(); }
  std::unique_ptr<comm::WaitDeadline> deadline(std::string phase, comm::Awaited awaited) override {
    return std::make_unique<MeshDeadline>(mesh_, spec_.deadline_s, spec_.find_absence,
                                          std::move(phase), std::move(awaited));
  }
  bool copies() const override { return true; }

 private:
  const comm::TcpSpec spec_;
  comm::Staging staging_;
  Mesh mesh_;
};

}  // namespace

}  // namespace lockstep::tcp

namespace lockstep::comm {

std::unique_ptr<Communicator> make_tcp_communicator(Control& control, const TcpSpec& spec) {
  const int world = control.world();
  return make_direct_communicator(
      world > 1 ? std::make_unique<tcp::MeshTransport>(control, spec) : nullptr, control.rank(),
      world, control.activity);
}

}  // namespace lockstep::comm
