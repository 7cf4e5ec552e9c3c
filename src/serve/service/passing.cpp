#include "serve/service/passing.hpp"

namespace lockstep::serve {

void Underway::add(const One& one) {
  const std::scoped_lock lock(mutex_);
  all_.insert(one);
}

bool Underway::end(const One& one) {
  const std::scoped_lock lock(mutex_);
  if (one->over.exchange(true)) return false;
  all_.erase(one);
  return true;
}

std::vector<Underway::One> Underway::those(const std::function<bool(const Passing&)>& fits) const {
  const std::scoped_lock lock(mutex_);
  std::vector<One> found;
  for (const One& one : all_)
    if (fits(*one)) found.push_back(one);
  return found;
}

std::vector<Underway::One> Underway::late(double now_s) const {
  return those([&](const Passing& one) { return !one.queued && now_s >= one.deadline_s; });
}

std::vector<Underway::One> Underway::all() const {
  return those([](const Passing&) { return true; });
}

}  // namespace lockstep::serve
