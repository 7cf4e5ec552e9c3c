// Fuzzes checkpoints whose checksum is right and whose content is not: anyone can compute a CRC.
// HDF5 itself makes each file; the input says which of its items have another type, shape or place,
// and their values. So the structure of the file is always valid, as with shards.
#include "lockstep/model/model.hpp"

#include <hdf5.h>

#include <array>
#include <cstring>

#include "lockstep/base/files/h5.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/unit/model/checkpoint_fixture.hpp"
#include "tests/unit/model/sealed_checkpoint.hpp"

namespace lockstep::fuzz {
namespace {

enum class Kind { count, real, reals, text, texts, bytes, tensor };

struct Item {
  const char* name;
  Kind kind;
  bool data_set() const { return kind >= Kind::texts; }
};

constexpr std::array planted_items = {
    Item{"step", Kind::count},
    Item{"epoch", Kind::count},
    Item{"batch", Kind::count},
    Item{"epoch_loss_sum", Kind::real},
    Item{"epoch_rows", Kind::count},
    Item{"epoch_top1", Kind::count},
    Item{"best_top1", Kind::real},
    Item{"best_epoch", Kind::count},
    Item{"backend", Kind::text},
    Item{"build", Kind::text},
    Item{"world", Kind::count},
    Item{"replicas", Kind::count},
    Item{"train_rows", Kind::count},
    Item{"train_rows_hash", Kind::count},
    Item{"metrics_bytes", Kind::count},
    Item{"channels", Kind::count},
    Item{"height", Kind::count},
    Item{"width", Kind::count},
    Item{"epoch_bad_rows", Kind::count},
    Item{"short_side", Kind::count},
    Item{"fit", Kind::text},
    Item{"mean", Kind::reals},
    Item{"stddev", Kind::reals},
    Item{"loss_scale", Kind::real},
    Item{"loss_scale_good_steps", Kind::count},
    Item{"skipped_in_a_row", Kind::count},
    Item{"skipped", Kind::count},
    Item{"config", Kind::bytes},
    Item{"network", Kind::bytes},
    Item{"classes", Kind::texts},
    Item{"bad_rows", Kind::texts},
    Item{"weights/fc.weight", Kind::tensor},
    Item{"weights/bn1.running_mean", Kind::tensor},
    Item{"momentum/fc.weight", Kind::tensor},
    Item{"ema_tensors", Kind::count},
    Item{"ema/fc.weight", Kind::tensor},
    Item{"ema/bn1.running_mean", Kind::tensor},
};

/// What an unchanged item says where other values would end the reading.
std::string_view usual_text(const Item& item) {
  const std::string_view name = item.name;
  if (name == "fit") return "all";
  if (name != "network") return "";
  return R"({"name":"n","input":{"height":3,"width":3,"channels":3},"classes":2,"nodes":[)"
         R"({"name":"i","op":"input"},{"name":"p","op":"global_avg_pool","inputs":["i"]},)"
         R"({"name":"fc","op":"linear","inputs":["p"],"channels":2,"bias":false},)"
         R"({"name":"l","op":"loss","inputs":["fc"]}]})";
}

/// How one item is made; all zeros: as lockstep makes it.
struct Form {
  std::uint8_t type = 0, shape = 0, size = 0, place = 0;
};

class Maker {
 public:
  explicit Maker(Input& input) : input_(input) {
    const h5::Properties creation(H5Pcreate(H5P_FILE_CREATE)), access(H5Pcreate(H5P_FILE_ACCESS));
    H5Pset_userblock(creation.get(), test::user_block_bytes);
    H5Pset_fapl_core(access.get(), 1 << 14, 0);
    file_ = h5::File(H5Fcreate("fuzz", H5F_ACC_TRUNC, creation.get(), access.get()));
    std::array<Form, planted_items.size()> forms{};
    for (std::size_t changes = input_.byte() % 4; changes > 0; --changes) {
      Form& form = forms[input_.byte() % forms.size()];
      form = {input_.byte(), input_.byte(), input_.byte(), input_.byte()};
    }
    for (const char* group : {"weights", "momentum", "ema"})
      const h5::Group made(H5Gcreate2(file_.get(), group, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    for (std::size_t i = 0; i < forms.size(); ++i) make(planted_items[i], forms[i]);
  }

  std::vector<std::uint8_t> sealed() {
    H5Fflush(file_.get(), H5F_SCOPE_LOCAL);
    hsize_t bytes = 0;
    void* image = nullptr;
    H5Fget_filesize(file_.get(), &bytes);
    H5Fget_vfd_handle(file_.get(), H5P_DEFAULT, &image);
    const std::span<char> all(*static_cast<char**>(image), bytes);
    test::seal(all);
    return {all.begin(), all.end()};
  }

 private:
  static h5::Type text_type(std::size_t bytes) {
    h5::Type type(H5Tcopy(H5T_C_S1));
    H5Tset_size(type.get(), bytes);
    return type;
  }
  static h5::Type usual_type(Kind kind) {
    switch (kind) {
      case Kind::count:
        return h5::Type(H5Tcopy(H5T_NATIVE_UINT64));
      case Kind::real:
        return h5::Type(H5Tcopy(H5T_NATIVE_DOUBLE));
      case Kind::reals:
      case Kind::tensor:
        return h5::Type(H5Tcopy(H5T_NATIVE_FLOAT));
      case Kind::bytes:
        return h5::Type(H5Tcopy(H5T_NATIVE_UINT8));
      default:
        return text_type(8);
    }
  }
  static constexpr unsigned types = 12, variable_text = 6, variable = 9;
  static h5::Type type_of(const Item& item, const Form& form) {
    const std::size_t size = 1 + form.size;
    switch (form.type % types) {
      case 1:
        return h5::Type(H5Tcopy(H5T_STD_U64BE));
      case 2:
        return h5::Type(H5Tcopy(H5T_IEEE_F64LE));
      case 3:
        return h5::Type(H5Tcopy(H5T_STD_I8LE));
      case 4:
        return text_type(size);
      case 5:
        return text_type(size << (form.place % 16));
      case variable_text:
        return text_type(H5T_VARIABLE);
      case 7: {
        const hsize_t elements = size;
        return h5::Type(H5Tarray_create2(usual_type(item.kind).get(), 1, &elements));
      }
      case 8: {
        h5::Type type(H5Tcreate(H5T_COMPOUND, 8 + size));
        H5Tinsert(type.get(), "a", size, H5T_NATIVE_DOUBLE);
        return type;
      }
      case variable:
        return h5::Type(H5Tvlen_create(H5T_NATIVE_UINT8));
      case 10:
        return h5::Type(H5Tcreate(H5T_OPAQUE, size));
      case 11:
        return h5::Type(H5Tenum_create(H5T_NATIVE_INT32));
      default:
        return usual_type(item.kind);
    }
  }

  static std::vector<hsize_t> usual_shape(const Item& item) {
    const std::string name = item.name;
    if (name.ends_with("fc.weight")) return {3, 4};
    if (name.ends_with("running_mean")) return {2};
    if (item.kind == Kind::reals) return {3};
    if (item.kind == Kind::bytes)
      return {std::max<hsize_t>(40, static_cast<hsize_t>(usual_text(item).size()))};
    return {item.kind == Kind::texts ? 2u : 1u};
  }
  static h5::Space space_of(const Item& item, const Form& form) {
    const hsize_t size = form.size, large = hsize_t{1} << (form.size % 63);
    std::vector<hsize_t> shape = usual_shape(item);
    switch (form.shape % 8) {
      case 1:
        return h5::Space(H5Screate(H5S_SCALAR));
      case 2:
        return h5::Space(H5Screate(H5S_NULL));
      case 3:
        shape = {size};
        break;
      case 4:
        shape.push_back(1 + size % 5);
        break;
      case 5:
        shape = {large};
        break;
      case 6:
        shape = {large, large};
        break;
      case 7:
        shape = {size, large, 3};
        break;
      default:
        break;
    }
    return h5::Space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
  }

  void make(const Item& item, const Form& form) {
    constexpr unsigned missing = 15;
    if (form.place / 16 == missing) return;
    const h5::Type type = type_of(item, form);
    const h5::Space space = space_of(item, form);
    if (!type || !space) return;
    if (!item.data_set()) {
      const h5::Attribute made(
          H5Acreate2(file_.get(), item.name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
      if (made && fill(item, form, type, space)) H5Awrite(made.get(), type.get(), values_.data());
      return;
    }
    const h5::Properties how = place_of(form, space);
    const h5::Data made(H5Dcreate2(file_.get(), item.name, type.get(), space.get(), H5P_DEFAULT,
                                   how.get(), H5P_DEFAULT));
    if (made && form.place / 16 < 8 && fill(item, form, type, space))
      H5Dwrite(made.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values_.data());
  }

  static h5::Properties place_of(const Form& form, const h5::Space& space) {
    h5::Properties how(H5Pcreate(H5P_DATASET_CREATE));
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (form.place % 16 == 1) H5Pset_layout(how.get(), H5D_COMPACT);
    if (form.place % 16 > 1 && form.place % 16 < 5 && rank > 0) {
      const std::vector<hsize_t> chunk(static_cast<std::size_t>(rank), 1 + form.size % 16);
      H5Pset_chunk(how.get(), rank, chunk.data());
      if (form.place % 16 == 4) H5Pset_deflate(how.get(), 1);
    }
    if (form.place % 16 == 5) H5Pset_external(how.get(), "/proc/self/cmdline", 0, H5F_UNLIMITED);
    return how;
  }

  /// Takes values from the input, and zeros after its end; false when there would be too many.
  bool fill(const Item& item, const Form& form, const h5::Type& type, const h5::Space& space) {
    constexpr hssize_t most = 1 << 12;
    const hssize_t count = H5Sget_simple_extent_npoints(space.get());
    const std::size_t size = H5Tget_size(type.get());
    if (count < 0 || count > most || size > (1 << 21)) return false;
    const auto values = static_cast<std::size_t>(count);
    values_.assign(std::max<std::size_t>(1, values * size), 0);
    const std::string_view usual = usual_text(item);
    if (!usual.empty() && form.type == 0 && usual.size() <= values_.size()) {
      std::copy(usual.begin(), usual.end(), values_.begin());
      return true;
    }
    static const char text[] = "a text\nof any length";
    if (form.type % types == variable_text) {
      const std::vector<const char*> all(values, text);
      std::memcpy(values_.data(), all.data(), values * sizeof all[0]);
    } else if (form.type % types == variable) {
      const std::vector<hvl_t> all(values, {sizeof text, const_cast<char*>(text)});
      std::memcpy(values_.data(), all.data(), values * sizeof all[0]);
    } else if (H5Tget_class(type.get()) == H5T_STRING || form.type != 0) {
      const auto given = input_.take(values_.size());
      std::copy(given.begin(), given.end(), values_.begin());
    } else if (item.kind == Kind::count) {
      for (std::size_t i = 0; i < values; ++i) values_[i * size] = 3;  // channels, above all
    }
    return true;
  }

  Input& input_;
  h5::File file_;
  std::vector<std::uint8_t> values_;
};

void read_all(const std::filesystem::path& path) {
  const auto attempt = [](auto&& reading) {
    try {
      reading();
    } catch (const InputError&) {
    }
  };
  attempt([&] {
    const model::CheckpointHeader header = model::read_header(path);
    for (const std::string* text : {&header.backend, &header.build})
      require_law(text->find('\0') == text->npos, "a text ends at its zero");
    for (const auto* values : {&header.input.mean, &header.input.stddev})
      require_law(values->size() == header.input.channels, "a channel has its mean");
  });
  attempt([&] {
    for (const model::TensorEntry& tensor : model::list_tensors(path))
      require_law(tensor.name.find('/') != tensor.name.npos, "a tensor has a group");
  });
  attempt([&] {
    const model::Model model = model::load(path);
    require_law(model.weights.size() == nn::tensors(model.about.network).size(),
                "a tensor of the network has its weights");
  });
  attempt([&] {
    test::FakeParameters parameters({{"fc.weight", nn::Role::linear_weight, 0, {3, 4}},
                                     {"bn1.running_mean", nn::Role::running_mean, 0, {2}}});
    parameters.start_average();
    model::load_tensors(path, parameters, true);
    model::load_average(path, parameters);
  });
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all = {std::string(4, 0)};
  const auto add = [&all](const std::vector<int>& bytes) {
    std::string text;
    for (const int byte : bytes) text += static_cast<char>(byte);
    all.push_back(text + std::string(64, 'x'));
  };
  const int items = static_cast<int>(planted_items.size());
  for (int item = 0; item < items; ++item) {
    for (int type = 1; type < 12; ++type) add({1, item, type, 0, 7, 0});
    for (int shape = 1; shape < 8; ++shape) add({1, item, 0, shape, 6, 0});
    for (int place = 0; place < 6; ++place) add({1, item, 4, 5, 61, 128 + place});
  }
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  static const Scratch folder;
  static ScratchFile file(folder, "checkpoint.h5");
  Input input(bytes);
  {
    const h5::Session session;
    file.put(Maker(input).sealed());
  }
  read_all(file.path());
}

}  // namespace lockstep::fuzz
