#include <string>
#include <utility>

#include "lockstep/serve/input_rows.hpp"

namespace lockstep::serve {
namespace {

class PackedRows final : public InputRows {
 public:
  PackedRows(data::DataSet rows, const data::AugmentSpec& spec, bool labelled)
      : rows_(std::move(rows)), made_(rows_, spec), labelled_(labelled) {}

  const data::DataSetInfo& info() const override { return made_.info(); }
  std::int32_t label(std::size_t row) const override { return labelled_ ? made_.label(row) : -1; }
  data::MakeRow row_maker() const override { return made_.row_maker(); }
  bool prepare(std::size_t row) const override { return made_.prepare(row); }
  std::size_t usual_readahead(const data::LoaderSpec& loader) const override {
    return made_.usual_readahead(loader);
  }
  std::string name(std::size_t row) const override { return rows_.file_name(row); }
  std::size_t name_bytes() const override { return rows_.file_name_bytes(); }
  bool labelled() const override { return labelled_; }

  std::string fingerprint() const override { return rows_.fingerprint(); }

 private:
  const data::DataSet rows_;
  data::DataSetRows made_;
  bool labelled_;
};

}  // namespace

std::unique_ptr<InputRows> packed_rows(data::DataSet rows, const data::AugmentSpec& spec,
                                       bool labelled) {
  return std::make_unique<PackedRows>(std::move(rows), spec, labelled);
}

}  // namespace lockstep::serve
