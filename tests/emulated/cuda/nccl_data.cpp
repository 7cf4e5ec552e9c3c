#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lockstep/base/error.hpp"
#include "tests/emulated/cuda/nccl.hpp"

namespace lockstep::emulated {

namespace {

using Verb = Operation::Verb;

/// The combination of all ranks' elements, rank by rank; `Wide` holds the sum.
template <class Value, class Wide, class Read, class Write>
void combine(const std::vector<const Operation*>& by_rank, std::size_t count, std::byte* result,
             const Read& read, const Write& write) {
  const bool sum = by_rank[0]->reduction == ncclSum;
  for (std::size_t i = 0; i < count; ++i) {
    Wide all{};
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      const Wide value = read(static_cast<const Value*>(by_rank[rank]->from)[i]);
      if (rank == 0)
        all = value;
      else
        all = sum ? static_cast<Wide>(all + value) : std::max(all, value);
    }
    const Value made = write(all);
    std::memcpy(result + i * sizeof(Value), &made, sizeof(Value));
  }
}

std::vector<std::byte> combined(const std::vector<const Operation*>& by_rank, std::size_t count) {
  std::vector<std::byte> result(count * bytes_of(by_rank[0]->type));
  const auto plain = [](auto value) { return value; };
  // Integers wrap around.
  switch (by_rank[0]->type) {
    case ncclFloat32:
      combine<float, float>(by_rank, count, result.data(), plain, plain);
      break;
    case ncclFloat16:
      combine<__half, float>(by_rank, count, result.data(), __half2float, __float2half_rn);
      break;
    case ncclBfloat16:
      combine<__nv_bfloat16, float>(
          by_rank, count, result.data(), [](__nv_bfloat16 v) { return __bfloat162float(v); },
          [](float v) { return __float2bfloat16_rn(v); });
      break;
    case ncclInt32:
      combine<std::int32_t, std::int64_t>(by_rank, count, result.data(), plain, [](std::int64_t v) {
        return static_cast<std::int32_t>(v);
      });
      break;
    case ncclInt64:
      combine<std::int64_t, std::int64_t>(by_rank, count, result.data(), plain, plain);
      break;
    default:
      throw Error("a collective of a type that the emulation does not know");
  }
  return result;
}

}  // namespace

std::string describe(const Operation& o) {
  constexpr const char* names[] = {"all-reduce", "reduce-scatter", "all-gather",
                                   "broadcast",  "send",           "receive"};
  std::string text = fmt::format("{} of {} elements of type {}", names[static_cast<int>(o.verb)],
                                 o.count, static_cast<int>(o.type));
  if (o.verb == Verb::all_reduce || o.verb == Verb::reduce_scatter)
    text += o.reduction == ncclSum ? " (sum)" : " (max)";
  if (o.verb == Verb::broadcast) text += fmt::format(" from rank {}", o.peer);
  if (o.message()) text += fmt::format(" {} rank {}", o.verb == Verb::send ? "to" : "from", o.peer);
  return text;
}

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclFloat32:
    case ncclInt32:
      return 4;
    case ncclInt64:
      return 8;
    case ncclInt8:
      return 1;
    default:
      return 0;
  }
}

std::size_t bytes_read(const Operation& o, std::size_t ranks) {
  if (o.verb == Verb::receive) return 0;
  return o.count * bytes_of(o.type) * (o.verb == Verb::reduce_scatter ? ranks : 1);
}
std::size_t bytes_written(const Operation& o, std::size_t ranks) {
  if (o.verb == Verb::send) return 0;
  return o.count * bytes_of(o.type) * (o.verb == Verb::all_gather ? ranks : 1);
}

void move_data(const std::vector<const Operation*>& by_rank) {
  const Operation& first = *by_rank[0];
  const std::size_t ranks = by_rank.size(), size = first.count * bytes_of(first.type);
  switch (first.verb) {
    case Verb::send:  // by_rank: the send, the receive
      std::memcpy(by_rank[1]->to, first.from, size);
      return;
    case Verb::broadcast: {
      const void* from = by_rank[static_cast<std::size_t>(first.peer)]->from;
      for (const Operation* one : by_rank) std::memmove(one->to, from, size);
      return;
    }
    case Verb::all_gather: {
      std::vector<std::byte> all(size * ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank)
        if (size > 0) std::memcpy(all.data() + rank * size, by_rank[rank]->from, size);
      for (const Operation* one : by_rank) std::memcpy(one->to, all.data(), all.size());
      return;
    }
    case Verb::all_reduce: {
      const std::vector<std::byte> all = combined(by_rank, first.count);
      for (const Operation* one : by_rank) std::memcpy(one->to, all.data(), all.size());
      return;
    }
    case Verb::reduce_scatter: {
      const std::vector<std::byte> all = combined(by_rank, first.count * ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank)
        std::memcpy(by_rank[rank]->to, all.data() + rank * size, size);
      return;
    }
    case Verb::receive:
      throw Error("a message begins with its send");
  }
}

}  // namespace lockstep::emulated
