#include "serve/stored_form.hpp"

namespace lockstep::serve {

data::DataSetInfo stored_as(const data::ImageForm& form, const data::DataSetInfo& input,
                            std::size_t rows) {
  data::DataSetInfo stored = input;
  stored.rows = rows;
  stored.encoding = form.jpeg ? data::Encoding::jpeg : data::Encoding::raw;
  if (form.jpeg) stored.height = stored.width = 0;
  if (form.height > 0) {
    stored.height = form.height;
    stored.width = form.width;
  }
  return stored;
}

}  // namespace lockstep::serve
