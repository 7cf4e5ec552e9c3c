#include "lockstep/base/files/h5_writer.hpp"

#include <fmt/format.h>
#include <hdf5.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/room.hpp"

namespace lockstep::h5 {
namespace {

/// Files have the same bytes wherever they are written, so this is not the system's page.
constexpr hsize_t disk_block = 4096, cache_line = 64;
/// HDF5 first tries to open a file of this name, even if it makes one in memory. There must be
/// none, and a disk that does not answer must not be asked.
constexpr const char* nowhere = "/dev/null/in-memory.h5";
constexpr std::size_t huge_page = std::size_t{2} << 20;
/// HDF5 crashes where it gets no memory for what it keeps of an open file.
constexpr std::size_t room_of_hdf5 = std::size_t{8} << 20;

/// Large memory is in huge pages where the system has them: it is touched once, and the pages of a
/// checkpoint would take longer than its bytes.
char* allocate(std::size_t bytes) {
  if (bytes < huge_page) return static_cast<char*>(std::malloc(bytes));
  const std::size_t whole = (bytes + huge_page - 1) / huge_page * huge_page;
  auto* memory = static_cast<char*>(std::aligned_alloc(huge_page, whole));
  if (!memory) return nullptr;
  ::madvise(memory, whole, MADV_HUGEPAGE);  // only a hint: it may fail
  return memory;
}

}  // namespace

SpareMemory::Block SpareMemory::take(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  return kept_.bytes >= bytes ? std::exchange(kept_, {}) : Block{};
}

void SpareMemory::keep(Block block) {
  const std::scoped_lock lock(mutex_);
  std::swap(kept_, block);
  std::free(block.memory);
}

/// Where HDF5 keeps a file in memory. It asks for the memory by callbacks, so that the file's bytes
/// can outlive it, and fills with zeros what it gets. So it gets memory for what it writes alone.
struct Writer::Memory {
  char* data = nullptr;
  std::size_t size = 0;
  std::shared_ptr<SpareMemory> spare;
  struct Place {
    std::size_t begin = 0, end = 0;
  };
  std::vector<Place> reserved;
  explicit Memory(std::shared_ptr<SpareMemory> from) : spare(std::move(from)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(data); }

  void* resize(std::size_t bytes) {
    if (bytes <= size) return data;
    return move_to({allocate(bytes), bytes});
  }

  /// The whole file: what HDF5 wrote, and zeros after that where nothing is reserved.
  void complete(std::size_t bytes) {
    std::size_t at = std::min(size, bytes);
    SpareMemory::Block whole = spare ? spare->take(bytes) : SpareMemory::Block{};
    if (!whole.memory && bytes > size) whole = {allocate(bytes), bytes};
    if (!move_to(whole) && bytes > size) throw std::bad_alloc();
    std::ranges::sort(reserved, {}, &Place::begin);
    for (const auto& [begin, end] : reserved) {
      std::fill(data + at, data + std::max(at, begin), '\0');
      at = std::max(at, end);
    }
    std::fill(data + at, data + bytes, '\0');
  }

  char* move_to(SpareMemory::Block block) {
    if (!block.memory) return nullptr;
    std::copy_n(data, std::min(size, block.bytes), block.memory);
    std::free(data);
    data = block.memory;
    size = block.bytes;
    return data;
  }

  H5FD_file_image_callbacks_t callbacks() {
    return {.image_malloc = [](std::size_t bytes, H5FD_file_image_op_t,
                               void* self) { return static_cast<Memory*>(self)->resize(bytes); },
            .image_memcpy = [](void* to, const void* from, std::size_t bytes, H5FD_file_image_op_t,
                               void*) { return std::memcpy(to, from, bytes); },
            .image_realloc = [](void*, std::size_t bytes, H5FD_file_image_op_t,
                                void* self) { return static_cast<Memory*>(self)->resize(bytes); },
            .image_free = [](void*, H5FD_file_image_op_t, void*) -> herr_t { return 0; },
            .udata_copy = [](void* self) { return self; },
            .udata_free = [](void*) -> herr_t { return 0; },
            .udata = this};
  }
};

Writer Writer::in_memory(const std::filesystem::path& path, InMemory how) {
  require_room(room_of_hdf5);
  Writer writer(path);
  const Properties creation(writer.done(H5Pcreate(H5P_FILE_CREATE)));
  writer.done(H5Pset_userblock(creation.get(), how.user_block));
  const Properties access(writer.done(H5Pcreate(H5P_FILE_ACCESS)));
  writer.done(H5Pset_meta_block_size(access.get(), how.records));
  writer.done(H5Pset_alignment(access.get(), 1, cache_line));
  writer.done(H5Pset_fapl_core(access.get(), how.bytes, false));
  writer.memory_ = std::make_shared<Memory>(std::move(how.spare));
  H5FD_file_image_callbacks_t callbacks = writer.memory_->callbacks();
  writer.done(H5Pset_file_image_callbacks(access.get(), &callbacks));
  writer.file_ = File(writer.done(H5Fcreate(nowhere, H5F_ACC_TRUNC, creation.get(), access.get())));
  return writer;
}

Writer Writer::on_disk(const std::filesystem::path& file, const std::filesystem::path& path,
                       std::size_t aligned) {
  Writer writer(path);
  writer.at_once_ = true;
  const Properties access = file_access();
  writer.done(H5Pset_alignment(access.get(), aligned, disk_block));
  writer.file_ =
      File(writer.done(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
  return writer;
}

Id Writer::done(Id result) const {
  if (result < 0)
    throw Error(fmt::format("{}: cannot be written (HDF5: {})", path_.string(), last_cause()));
  return result;
}

void Writer::make_group(const std::string& name) {
  const Group group(
      done(H5Gcreate2(file_.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
}

void Writer::attribute(const std::string& name, Shape shape, const std::string& text,
                       Ending ending) {
  // HDF5 has no empty text type, so the zero after the text is stored, too.
  const Type type = text_type(text.size() + (ending == Ending::zero ? 1 : 0), ending);
  make_attribute(name, type.get(), shape, text.c_str());
}

void Writer::data_set(const std::string& name, const std::vector<std::string>& texts,
                      Ending ending) {
  std::size_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  const std::size_t width =
      ending == Ending::zero ? longest + 1 : std::max<std::size_t>(1, longest);
  std::vector<char> characters(texts.size() * width);
  for (std::size_t i = 0; i < texts.size(); ++i)
    std::copy(texts[i].begin(), texts[i].end(), &characters[i * width]);
  const Type type = text_type(width, ending);
  const std::size_t count = texts.size();
  write(make_data_set(name, type.get(), {&count, 1}), type.get(), characters.data());
}

std::uint64_t Writer::reserve(const std::string& name, Shape shape, Id type) {
  std::size_t bytes = H5Tget_size(type);
  for (const std::size_t size : shape) bytes *= size;
  return reserve(make_data_set(name, type, shape, true), bytes);
}

std::uint64_t Writer::reserve_texts(const std::string& name, std::size_t count, std::size_t bytes) {
  const Type type = text_type(bytes, Ending::padding);
  return reserve(make_data_set(name, type.get(), {&count, 1}, true), count * bytes);
}

Type Writer::text_type(std::size_t bytes, Ending ending) const {
  Type type(done(H5Tcopy(H5T_C_S1)));
  done(H5Tset_size(type.get(), bytes));
  done(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  if (ending == Ending::padding) done(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
  return type;
}

Space Writer::space_of(Shape shape) const {
  if (shape.empty()) return Space(done(H5Screate(H5S_SCALAR)));
  const std::vector<hsize_t> sizes(shape.begin(), shape.end());
  return Space(done(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr)));
}

void Writer::make_attribute(const std::string& name, Id type, Shape shape, const void* values) {
  const Space space = space_of(shape);
  const Attribute attribute(
      done(H5Acreate2(file_.get(), name.c_str(), type, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
  done(H5Awrite(attribute.get(), type, values));
}

Data Writer::make_data_set(const std::string& name, Id type, Shape shape, bool at_once) {
  const Properties how(done(H5Pcreate(H5P_DATASET_CREATE)));
  done(H5Pset_obj_track_times(how.get(), false));
  if (at_once || at_once_) {
    done(H5Pset_layout(how.get(), H5D_CONTIGUOUS));
    done(H5Pset_alloc_time(how.get(), H5D_ALLOC_TIME_EARLY));
    done(H5Pset_fill_time(how.get(), H5D_FILL_TIME_NEVER));
  }
  const Space space = space_of(shape);
  return Data(done(H5Dcreate2(file_.get(), name.c_str(), type, space.get(), H5P_DEFAULT, how.get(),
                              H5P_DEFAULT)));
}

void Writer::write(const Data& data, Id type, const void* values) {
  done(H5Dwrite(data.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
}

std::uint64_t Writer::reserve(const Data& data, std::size_t bytes) {
  if (bytes == 0) return 0;
  const haddr_t offset = H5Dget_offset(data.get());
  check(offset != HADDR_UNDEF, "a data set that is allocated early has a place");
  if (memory_) memory_->reserved.push_back({offset, offset + bytes});
  return offset;
}

FileImage Writer::take_image() {
  // To flush a file in memory makes it as long as what is reserved, and fills all with zeros.
  if (memory_->reserved.empty()) done(H5Fflush(file_.get(), H5F_SCOPE_LOCAL));
  hsize_t size = 0;
  done(H5Fget_filesize(file_.get(), &size));
  close();
  memory_->complete(size);
  FileImage image;
  image.memory_ = {std::exchange(memory_->data, nullptr), {memory_->size, memory_->spare}};
  image.size_ = static_cast<std::size_t>(size);
  return image;
}

void Writer::close() { done(H5Fclose(file_.release())); }

}  // namespace lockstep::h5
