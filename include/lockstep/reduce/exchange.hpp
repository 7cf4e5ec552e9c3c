#pragma once

// How ranks agree on gradients or weights: the policy that a trainer follows in every step.
//
// Why ranks that differ are settled and not merged. Where an exchange lets ranks differ, their mean
// is put in place for an evaluation, an audit or a checkpoint, and each rank then gets its own
// state back. If they kept the mean, a training's bits would depend on when it was evaluated, saved
// or stopped. A difference that is on its way has the mean 0 and changes nothing in it.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/text/choices.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/reduce/buckets.hpp"

namespace lockstep::reduce {

/// exact: the sum of all ranks' gradients, in full precision. bf16, fp16, int8: what travels is
/// rounded to these. power_sgd: products of low rank travel. local: groups of ranks agree every few
/// steps. gossip: each rank gives half of its weights to another one in each step.
enum class ExchangeKind { exact, bf16, fp16, int8, power_sgd, local, gossip };

/// Slices [first, last) of the arena; empty by default.
struct SliceRange {
  std::size_t first = 0, last = 0;
};

/// Small texts of an exchange's state in checkpoints, by name, at least one byte each.
using ExchangeState = std::map<std::string, std::string>;

/// A large part of such a state: numbers in the plain layout, as tensors are exported, so that it
/// means the same on every backend and instruction set.
struct StatePart {
  std::string name;
  std::size_t bytes = 0;
};
/// What an exchange will save.
struct StateOutline {
  ExchangeState texts;
  std::vector<StatePart> parts;  ///< at least one byte each
};
using TakeBytes = std::function<void(std::string_view)>;

/// Such a state where it is kept. All ranks' parts together may not fit into one rank's memory, so
/// each is read only when it is asked for, and in pieces.
class SavedState {
 public:
  using ReadText = std::function<std::string(const std::string& name)>;
  using Next = std::function<void(std::span<std::byte> to)>;  ///< fills it with a part's next bytes
  using Open = std::function<Next(const std::string& part)>;
  SavedState(std::vector<std::string> texts, ReadText read, std::vector<StatePart> parts, Open open)
      : texts_(std::move(texts)),
        read_(std::move(read)),
        parts_(std::move(parts)),
        open_(std::move(open)) {}
  /// In memory, which must outlive this.
  SavedState(const ExchangeState& texts, const ExchangeState& parts);
  SavedState(const ExchangeState& texts);

  /// Of all texts and parts.
  std::vector<std::string> names() const;
  /// How many texts, or parts, have names that begin like this.
  std::size_t texts(std::string_view prefix) const;
  std::size_t parts(std::string_view prefix) const;
  /// The text; nothing where it is not there. Throws what reading throws.
  std::optional<std::string> find(const std::string& name) const;
  /// Nothing where the part is not there, or has another number of bytes.
  std::optional<Next> open(const std::string& part, std::size_t bytes) const;

 private:
  std::vector<std::string> texts_;
  ReadText read_;
  std::vector<StatePart> parts_;
  Open open_;
};

/// Per step the trainer calls begin(), ready(slice) for each slice in whatever order they become
/// final, and progress() between backward's pieces. Then, for each bucket in order, it calls
/// wait(bucket) and updates the slices of updates_after(bucket). At the end it calls
/// after_update(). All ranks have the same exchange and make the same steps.
///
/// The gradients of a step are this rank's sums, divided by the rows of all ranks: only their sum
/// over the ranks is the global batch's. The running statistics, which lie after the learned
/// slices, are such shares, too; they should be summed or averaged exactly.
///
/// **Where ranks differ.** Between its sums an exchange may leave each rank with a separate state.
/// One state then stands for all of them: settle() puts it in place on every rank, the same bits,
/// usually the mean of the ranks. It is what a run evaluates, takes for the best, audits and saves,
/// and what its average of the weights is in these. unsettle() gives each rank its own state back,
/// bit for bit. So no step depends on whether or when a run evaluates, audits or saves. A
/// checkpoint holds the settled state, and what save() adds makes each rank's own state from it. A
/// run says note() in its first lines, and its checkpoints name the exchange.
/// **Invariants:** all ranks issue the same collectives in the same order. If some are in flight
/// between steps, the destructor waits for them, unless an exception ends the run.
/// **Thread safety:** none; one thread uses it.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// The policy, as checkpoints name it.
  virtual std::string name() const = 0;
  /// What is approximate, and whether ranks differ, as one sentence for the user; empty where the
  /// ranks are equal after each step and nothing is approximate.
  virtual std::string note() const { return ""; }
  /// Whether each step puts the same work into the streams, so that a device may record it.
  virtual bool repeats() const { return true; }
  /// In how many steps from here all ranks must meet next: a run adds up what its steps were like
  /// that rarely, and may be asked to stop that much earlier than it does. Asked between steps.
  virtual std::size_t meets_every() const { return 1; }
  virtual const std::vector<Bucket>& buckets() const = 0;
  /// Whether micro-batches' gradients replace each other: it adds them up itself.
  virtual bool adds_shards() const { return false; }

  /// Throws Error when the last step is not over.
  virtual void begin() = 0;
  /// Of adds_shards(): the gradients of a micro-batch that is not the step's last are whole in the
  /// compute stream. Throws Error of others.
  virtual void keep();
  /// The slice's gradient is final on the compute stream. Throws Error when it already was.
  virtual void ready(std::size_t slice) = 0;
  /// Advances collectives in flight. Cheap; also finds out why one failed, and throws that.
  virtual void progress() = 0;
  /// Later work on the compute stream sees the bucket's gradients as the update needs them. Throws
  /// Error when some slices of the bucket are not final.
  virtual void wait(std::size_t bucket) = 0;
  /// The slices that may be updated once `bucket` was waited for. Over a step these ranges cover
  /// every slice once, in order.
  virtual SliceRange updates_after(std::size_t bucket) const = 0;
  /// Who decides about an overflow, asked before a step's first update if ExchangeSpec::loss_scale:
  /// on the device, the largest absolute gradient of all ranks (Vectors::largest()), where the
  /// update uses gradients that differ between ranks. Null: the gradients of the update do, which
  /// are then the same on all ranks.
  virtual const float* largest_gradient() { return nullptr; }
  /// All updates of the step, and of the running statistics, are in the compute stream. What the
  /// exchange now does to the weights follows them and precedes the average's update.
  virtual void after_update() = 0;

  /// See above; nothing where ranks are equal. Collective. Not between begin() and after_update(),
  /// and each settle() is followed by its unsettle().
  virtual void settle() {}
  virtual void unsettle() {}

  /// What save() gives: the same on all ranks. Not while settled.
  virtual StateOutline outline() const = 0;
  /// What a resume needs for the same bits. On rank 0 `take` gets the bytes of the outline's parts,
  /// one after the other, in pieces of a tensor at most: no rank has more of them in memory. It
  /// uses the gradients, which between two steps mean nothing. Collective.
  virtual void save(comm::Control& control, const TakeBytes& take) const = 0;
  /// `state` is the same on all ranks, as rank 0 saved it; the parameters hold the settled state.
  /// A part that means nothing here, because the ranks are others, is left out on all ranks, and a
  /// phrase says so; empty: the same bits follow. Throws InputError naming what does not fit,
  /// perhaps on some ranks alone.
  virtual std::string load(const SavedState& state) = 0;
  /// In place of load(), where there is no state: all ranks are equal after that many steps.
  virtual void begin_at(std::uint64_t step) = 0;
};

/// While it lives, all ranks hold the state that stands for all of them. After an exception the
/// exchange stays settled: its run has ended.
class Settled {
 public:
  explicit Settled(Exchange& exchange) : exchange_(exchange) { exchange_.settle(); }
  ~Settled() noexcept(false) {
    if (std::uncaught_exceptions() == exceptions_) exchange_.unsettle();
  }
  Settled(const Settled&) = delete;
  Settled& operator=(const Settled&) = delete;

 private:
  Exchange& exchange_;
  const int exceptions_ = std::uncaught_exceptions();
};

/// Loads the state, as Exchange::load() does, where `saved_by`, the exchange that wrote the
/// checkpoint of `step` at `origin`, is this one. Where one of the two is the exact exchange, all
/// ranks begin at the settled state, and a phrase says so. Else it throws InputError naming both.
/// Errors name `origin`.
std::string load_state(Exchange& exchange, const std::string& saved_by, const SavedState& state,
                       const std::string& origin, std::uint64_t step);

/// Of ExchangeKind::local.
struct LocalSpec {
  /// The number of each rank's group, by rank: 0, 1, ... in the order of their first ranks.
  std::vector<std::size_t> groups = {};
  std::uint64_t every = 1;      ///< steps from one agreement to the next
  std::uint64_t from_step = 0;  ///< all ranks make this many steps together before
  float outer_momentum = 0, outer_lr = 1;
};

/// Of ExchangeKind::gossip, which needs two ranks and gradients without a loss scale.
struct GossipSpec {
  std::size_t late = 1;  ///< steps after which weights that were sent are added; 0: at once
};

/// Of ExchangeKind::power_sgd.
struct PowerSgdSpec {
  std::size_t rank = 0;         ///< of products, 1 to 8
  std::uint64_t from_step = 0;  ///< all gradients are summed exactly in this many steps before
  /// A matrix whose product has not this many times fewer numbers is summed exactly.
  double least_saving = 2;
};

struct ExchangeSpec {
  ExchangeKind kind = ExchangeKind::exact;
  std::vector<Bucket> buckets;  ///< of the gradient arena
  /// A rank updates nothing before all buckets are reduced, because an overflow in any of them
  /// skips the whole step.
  bool update_at_once = false;
  /// The gradients have a loss scale, which all ranks must change alike.
  bool loss_scale = false;
  LocalSpec local = {};
  GossipSpec gossip = {};
  PowerSgdSpec power_sgd = {};
  /// Of ExchangeKind::exact: each micro-batch is one of that many shards of the batch, which are
  /// added in the same bits whatever ranks have them; 0: gradients are added as they come.
  std::size_t shards = 0;
};

/// What an exchange works with; all of it must outlive the exchange. Gradients become final on the
/// compute stream of the backend's device. An exchange that writes to weights calls
/// Parameters::weights_changed().
struct ExchangeParts {
  comm::Communicator& communicator;
  backend::Backend& backend;
  backend::Parameters& parameters;
};

std::unique_ptr<Exchange> make_exchange(ExchangeSpec spec, const ExchangeParts& parts);
using MakeExchange =
    std::function<std::unique_ptr<Exchange>(ExchangeSpec spec, const ExchangeParts& parts)>;

/// What the memory of an exchange depends on.
struct ExchangeSize {
  std::size_t numbers = 0;  ///< that are trained
  std::size_t world = 1;
  bool second_moments = false;  ///< of the run's rule
  std::size_t gossip_late = 1;
  std::size_t shards = 0;
  std::size_t bucket_bytes = 0;  ///< of the largest bucket, or of one that is asked for
};
/// Bytes of the device's memory that an exchange allocates: known before it is made, because plans
/// for memory count it.
std::size_t exchange_bytes(ExchangeKind kind, const ExchangeSize& of);

/// What an exchange adds to a checkpoint, in bytes.
struct SavedBytes {
  std::size_t each = 0;    ///< of each rank, or each group of a local exchange
  std::size_t common = 0;  ///< of all of them together
};
/// At most.
SavedBytes saved_bytes(ExchangeKind kind, std::size_t numbers, bool average, bool second_moments,
                       const LocalSpec& local = {}, const GossipSpec& gossip = {});

/// Bytes that travel in an exchange for each byte of gradients in fp32. Throws Error for PowerSGD,
/// where that depends on the network, and for gossip, which sums nothing.
double wire_share(ExchangeKind kind);

/// What PowerSGD sums in a step, in fp32.
struct LowRankTraffic {
  std::size_t matrices = 0;  ///< gradients that are products
  std::size_t thin = 0;      ///< numbers of these products
  std::size_t exact = 0;     ///< numbers of all other gradients and running statistics
};
/// Pure.
LowRankTraffic power_sgd_traffic(const nn::ArenaLayout& layout, const PowerSgdSpec& how);

}  // namespace lockstep::reduce

namespace lockstep {

template <>
struct Choices<reduce::ExchangeKind> {
  using enum reduce::ExchangeKind;
  static constexpr Choice<reduce::ExchangeKind> all[] = {
      {exact, "exact"},         {bf16, "bf16"},   {fp16, "fp16"},    {int8, "int8"},
      {power_sgd, "power-sgd"}, {local, "local"}, {gossip, "gossip"}};
};

}  // namespace lockstep
