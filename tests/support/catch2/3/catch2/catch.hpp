#pragma once

// Catch2 3 by the name and the words of Catch2 2, which the tests use. Its own matcher Contains, of
// ranges, is left out, because that of texts has this name here.

#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_predicate.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>

#include <string>

namespace Catch {

namespace Matchers {
inline auto Contains(const std::string& text, CaseSensitive sensitive = CaseSensitive::Yes) {
  return ContainsSubstring(text, sensitive);
}
}  // namespace Matchers

using Matchers::Contains;
using Matchers::EndsWith;
using Matchers::Equals;
using Matchers::StartsWith;

}  // namespace Catch

using Catch::Approx;
