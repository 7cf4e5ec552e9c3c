#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/model/preparation.hpp"

namespace lockstep::model {

/// Limits of a header: an attribute's 64 KiB; two paths and a reason in a text; an image's side.
inline constexpr std::size_t most_numbers = 1 << 14, longest_text = 1 << 16, longest_side = 1 << 16;

/// A checkpoint that is open for reading. The checksum proves that it is unchanged, but not who
/// wrote it, so sizes and types are not trusted.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& path)
      : path_(path), file_(h5::open_file(path)) {}

  bool has(const char* name) const { return h5::has_attribute(file_, name); }
  std::uint64_t count(const char* name) const { return attribute(name).number<std::uint64_t>(); }
  double real(const char* name) const { return attribute(name).number<double>(); }
  std::string text(const char* name) const { return attribute(name).text(longest_text); }
  std::vector<float> reals(const char* name, std::size_t channels) const {
    const h5::Item item = attribute(name);
    if (item.count() != channels)
      item.refuse(fmt::format("does not have one value for each of {} channels", channels));
    return item.numbers<float>(most_numbers);
  }

  std::vector<std::string> names(const std::string& group) const {
    return h5::names_in(file_, path_, group);
  }
  std::vector<std::size_t> shape(const std::string& name) const { return data_set(name).shape(); }
  void read(const std::string& name, std::span<float> values) const { data_set(name).read(values); }
  std::vector<float> tensor(const std::string& name) const {
    const h5::Item item = data_set(name);
    return item.numbers<float>(item.count());
  }
  std::vector<std::string> texts(const char* name) const {
    const h5::Item item = data_set(name);
    item.expect_rank(1);
    return item.read_fixed_strings(longest_text);
  }
  bool has_data_set(std::string_view name) const {
    const auto all = names("/");
    return std::binary_search(all.begin(), all.end(), name);
  }
  Preparation preparation() const {
    const h5::Item fit = attribute("fit"), side = attribute("short_side");
    const auto short_side = side.number<std::uint64_t>();
    if (short_side > longest_side)
      side.refuse(fmt::format("is {}; at most {} is possible", short_side, longest_side));
    const std::string text = fit.text(longest_text);
    for (const auto& [value, name] : Choices<Resized>::all)
      if (text == name) return {value, short_side};
    fit.refuse(fmt::format("is not {}", join(choice_names<Resized>(), ", ")));
  }
  std::string bytes(const std::string& name) const {
    const h5::Item item = data_set(name);
    std::string found(item.expect_rank(1)[0], '\0');
    item.read(std::span(reinterpret_cast<std::uint8_t*>(found.data()), found.size()));
    return found;
  }

 private:
  h5::Item attribute(const char* name) const {
    return h5::Item::attribute(file_.get(), path_, name);
  }
  h5::Item data_set(const std::string& name) const {
    h5::Item item = h5::Item::data_set(file_.get(), path_, name);
    item.expect_plain();
    return item;
  }
  const std::filesystem::path& path_;
  h5::Session session_;  // outlives the open file
  h5::File file_;
};

}  // namespace lockstep::model
