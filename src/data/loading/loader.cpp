#include "lockstep/data/loading/loader.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "data/loading/row_maker.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t rows_of_piece = 16;  // of a batch, taken by a worker at once
constexpr std::size_t target_alignment = 64;

// A batch's place in the ring. Turn t always uses slot t mod slots, so batches need no queue.
struct Slot {
  enum class State { free, filling, ready, lent };
  State state = State::free;
  std::size_t missing = 0;      // rows that no worker has finished
  device::PinnedBuffer memory;  // images, then targets, then what else is wanted
  std::uint8_t* images = nullptr;
  Target* targets = nullptr;
  float* wanted = nullptr;  // null where the task is classes
  std::vector<Replaced> replaced;
};

// Rows [first, last) of the batch of one turn.
struct RowShare {
  std::uint64_t turn = 0;
  std::size_t first = 0, last = 0;
};

/// A row that cannot be read is bad data, where what was thrown says nothing else.
[[noreturn]] void end_with(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InputError& found) {
    if (ending_of(found) == Ending::unknown) throw InputError(found.what(), Ending::bad_data);
    throw;
  }
}

}  // namespace

// Batches are counted in turns: turn t is batch t mod batches() of epoch t / batches(). `mutex`
// guards everything that workers and trainer share, except the rows themselves: a piece belongs to
// the worker that claimed it, and a slot to the trainer while it is lent.
struct Loader::Impl {
  const std::shared_ptr<const RowSource> source;
  const RowSource& rows;
  const LoaderSpec spec;
  const Sampler sampler;
  const DataSetInfo shape;      // of a batch's rows
  const std::size_t row_bytes;  // of a batch
  const std::size_t wanted_values;
  const std::uint64_t end_turn;
  const std::size_t readahead;  // rows
  std::vector<Slot> slots;

  std::mutex mutex;
  std::condition_variable work;   // for workers: a slot is free, or the end
  std::condition_variable ready;  // for the trainer: a batch is ready, or an error
  std::uint64_t fill_turn;        // the turn that pieces are claimed from
  std::size_t fill_row = 0;       // its first row that no worker has claimed
  std::uint64_t next_turn;        // the turn that next() returns
  std::exception_ptr error;
  std::atomic<std::uint64_t> asked{0};  // rows asked for, counted over all turns
  std::atomic<bool> stopping{false};    // set under the mutex, also read between rows
  std::vector<std::thread> workers;

  Impl(std::shared_ptr<const RowSource> from, const LoaderSpec& what, device::Device& device)
      : source(std::move(from)),
        rows(*source),
        spec(what),
        sampler(what.sampler),
        shape(rows.info()),
        row_bytes(shape.row_bytes()),
        wanted_values(shape.wanted_values()),
        end_turn((spec.epoch + spec.epochs) * sampler.batches()),
        readahead(spec.readahead > 0 ? spec.readahead : rows.usual_readahead(spec)),
        slots(spec.slots),
        fill_turn(spec.epoch * sampler.batches() + spec.batch),
        next_turn(fill_turn) {
    check(spec.sampler.rows == rows.info().rows, "the sampler counts the data set's rows");
    require(spec.mix.mixup == 0 || shape.has_plain_bytes(),
            fmt::format("data.mixup mixes the levels of uint8, but the images are {}; data.cutmix "
                        "takes these, too",
                        say_values(shape)));
    check(spec.workers > 0 && spec.slots > 0, "a loader has workers and slots");
    check(spec.batch <= sampler.batches(), "the first batch lies in the epoch");
    const std::size_t image_bytes = sampler.replica_batch() * row_bytes;
    const std::size_t target_offset =
        (image_bytes + target_alignment - 1) / target_alignment * target_alignment;
    for (Slot& slot : slots) {
      const std::size_t wanted_offset = target_offset + sampler.replica_batch() * sizeof(Target);
      slot.memory = device.allocate_pinned(wanted_offset +
                                           sampler.replica_batch() * wanted_values * sizeof(float));
      slot.images = reinterpret_cast<std::uint8_t*>(slot.memory.data());
      slot.targets = reinterpret_cast<Target*>(slot.memory.data() + target_offset);
      if (wanted_values > 0)
        slot.wanted = reinterpret_cast<float*>(slot.memory.data() + wanted_offset);
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    work.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  Slot& slot_of(std::uint64_t turn) { return slots[turn % slots.size()]; }

  // Called once the loader owns this object: if the last thread cannot be started, ~Impl() ends the
  // others.
  void start() {
    for (std::size_t i = 0; i < spec.workers; ++i) workers.emplace_back([this] { run(); });
  }

  void run() {
    try {
      if (spec.bind_worker) spec.bind_worker();
      const MakeRow make = rows.row_maker();
      while (const std::optional<RowShare> piece = claim()) {
        read_ahead(*piece);
        if (fill_piece(*piece, make)) give_back(*piece);
      }
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        stopping = true;
      }
      work.notify_all();
      ready.notify_one();
    }
  }

  // The next rows to fill; waits for a free slot. Empty at the end.
  std::optional<RowShare> claim() {
    std::unique_lock lock(mutex);
    work.wait(lock, [&] {
      return stopping || fill_turn == end_turn || fill_row > 0 ||
             slot_of(fill_turn).state == Slot::State::free;
    });
    if (stopping || fill_turn == end_turn) return std::nullopt;
    Slot& slot = slot_of(fill_turn);
    const std::size_t capacity = sampler.replica_batch();
    if (fill_row == 0) {
      slot.state = Slot::State::filling;
      slot.missing = capacity;
      slot.replaced.clear();
    }
    const RowShare piece{
        .turn = fill_turn, .first = fill_row, .last = std::min(fill_row + rows_of_piece, capacity)};
    fill_row = piece.last;
    if (fill_row == capacity) {
      ++fill_turn;
      fill_row = 0;
      if (fill_turn == end_turn) work.notify_all();
    }
    return piece;
  }

  // Asks for rows that are wanted soon, each once; returns to its own rows after decoding a block.
  void read_ahead(const RowShare& piece) {
    const std::uint64_t each = sampler.replica_batch(), here = piece.turn * each + piece.last;
    const std::uint64_t end = std::min(here + readahead, end_turn * each);
    while (readahead > 0 && !stopping.load(std::memory_order_relaxed)) {
      std::uint64_t at = asked.load(std::memory_order_relaxed);
      const std::uint64_t next = std::max(at, here);
      if (next >= end) return;
      if (!asked.compare_exchange_weak(at, next + 1, std::memory_order_relaxed)) continue;
      const std::uint64_t turn = next / each;
      const BatchPart part = sampler.part(turn % sampler.batches());
      if (next % each >= part.rows) continue;
      const std::size_t row =
          sampler.row(turn / sampler.batches(), part.first_position + next % each);
      if (rows.prepare(row)) return;
    }
  }

  // False when told to stop before all rows were filled.
  bool fill_piece(const RowShare& piece, const MakeRow& make) {
    const std::uint64_t epoch = piece.turn / sampler.batches();
    const BatchPart part = sampler.part(piece.turn % sampler.batches());
    Slot& slot = slot_of(piece.turn);
    for (std::size_t i = piece.first; i < piece.last; ++i) {
      if (stopping.load(std::memory_order_relaxed)) return false;
      const std::span image(slot.images + i * row_bytes, row_bytes);
      const std::span wanted(slot.wanted + i * wanted_values, wanted_values);
      if (i >= part.rows) {
        std::memset(image.data(), 0, image.size());
        std::ranges::fill(wanted, 0.f);
        slot.targets[i] = Target{};
        continue;
      }
      const RowVisit at = sampler.visit(epoch, part.first_position + i);
      std::size_t row = at.row;
      if (spec.replace_bad_rows)
        row = read_or_replace(slot, make, at.visit, {i, row, row, {}}, image);
      else
        make(at.visit, row, image);
      const std::int32_t label = rows.label(row);
      slot.targets[i] = Target{label, label, 1};
      if (wanted_values > 0) rows.wanted(row, wanted);
    }
    return true;
  }

  // Returns the row that was read: the given one or its replacement.
  std::size_t read_or_replace(Slot& slot, const MakeRow& make, std::uint64_t visit, Replaced found,
                              std::span<std::uint8_t> image) {
    read_whole(make, rows.info().rows, spec.augment.seed, visit, found, image);
    const std::size_t row = found.by;
    if (row == found.row) return row;
    const std::lock_guard lock(mutex);
    slot.replaced.push_back(std::move(found));
    return row;
  }

  void give_back(const RowShare& piece) {
    Slot& slot = slot_of(piece.turn);
    {
      const std::lock_guard lock(mutex);
      slot.missing -= piece.last - piece.first;
      if (slot.missing > 0) return;
    }
    // All rows are there, and no other thread looks at them.
    std::sort(slot.replaced.begin(), slot.replaced.end(),
              [](const Replaced& a, const Replaced& b) { return a.place < b.place; });
    if (spec.mix.any()) mix_slot(piece.turn);
    const std::lock_guard lock(mutex);
    slot.state = Slot::State::ready;
    ready.notify_one();
  }

  void mix_slot(std::uint64_t turn) {
    const std::uint64_t batch = turn % sampler.batches();
    const Slot& slot = slot_of(turn);
    const Mix mix = draw_mix(spec.mix, turn / sampler.batches(), batch, shape.height, shape.width);
    std::size_t first = 0;
    for (const std::size_t count : sampler.taken_rows(batch)) {
      mix_rows(mix, count, shape.height, shape.width, shape.pixel_bytes(),
               slot.images + first * row_bytes, slot.targets + first);
      if (wanted_values > 0)
        mix_wanted(mix, count, wanted_values, slot.wanted + first * wanted_values);
      first += count;
    }
  }

  Batch next() {
    std::unique_lock lock(mutex);
    check(next_turn < end_turn, "next() after the last batch of the last epoch");
    Slot& slot = slot_of(next_turn);
    check(slot.state != Slot::State::lent, "next() while all slots are lent");
    ready.wait(lock, [&] { return error || slot.state == Slot::State::ready; });
    if (error) end_with(error);
    slot.state = Slot::State::lent;
    const std::uint64_t turn = next_turn++;
    lock.unlock();

    Batch batch;
    batch.images = slot.images;
    batch.targets = slot.targets;
    batch.wanted = slot.wanted;
    batch.epoch = turn / sampler.batches();
    batch.index = turn % sampler.batches();
    batch.rows = sampler.part(batch.index).rows;
    batch.capacity = sampler.replica_batch();
    batch.slot = turn % slots.size();
    return batch;
  }

  bool batch_waits() {
    const std::lock_guard lock(mutex);
    return !error && next_turn < end_turn && slot_of(next_turn).state == Slot::State::ready;
  }

  void release(const Batch& batch) {
    {
      const std::lock_guard lock(mutex);
      check(batch.slot < slots.size() && slots[batch.slot].state == Slot::State::lent,
            "release() of a batch that is lent");
      slots[batch.slot].state = Slot::State::free;
    }
    work.notify_all();
  }
};

Loader::Loader(const DataSet& rows, const LoaderSpec& spec, device::Device& device)
    : impl_(
          std::make_unique<Impl>(std::make_shared<DataSetRows>(rows, spec.augment), spec, device)) {
  impl_->start();
}

Loader::Loader(const RowSource& rows, const LoaderSpec& spec, device::Device& device)
    : impl_(std::make_unique<Impl>(std::shared_ptr<const RowSource>(std::shared_ptr<void>(), &rows),
                                   spec, device)) {
  impl_->start();
}

Loader::~Loader() = default;

Batch Loader::next() { return impl_->next(); }

bool Loader::ready() const { return impl_->batch_waits(); }

std::span<const Replaced> Loader::replaced(const Batch& batch) const {
  return impl_->slots.at(batch.slot).replaced;
}

void Loader::release(const Batch& batch) { impl_->release(batch); }

const Sampler& Loader::sampler() const { return impl_->sampler; }

std::vector<std::span<const std::byte>> Loader::memory() const {
  std::vector<std::span<const std::byte>> parts;
  for (const Slot& slot : impl_->slots) parts.emplace_back(slot.memory.data(), slot.memory.size());
  return parts;
}

}  // namespace lockstep::data
