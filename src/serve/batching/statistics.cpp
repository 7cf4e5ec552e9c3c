#include "serve/batching/statistics.hpp"

namespace lockstep::serve {

void ModelFigures::add_success(double took_s) {
  success.add(took_s);
  for (std::size_t k = 0; k < bounds_s.size(); ++k)
    if (took_s <= bounds_s[k]) ++within[k];
}

}  // namespace lockstep::serve
