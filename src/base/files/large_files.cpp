#include "lockstep/base/files/files.hpp"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep {

void copy_atomically(const std::filesystem::path& from, const std::filesystem::path& to) {
  PendingPieces file(to, 0);
  read_in_pieces(from, [&](std::string_view piece) { file.add(piece); });
  file.commit();
}

void give_second_name(const std::filesystem::path& file, const std::filesystem::path& name) {
  std::error_code error;
  if (std::filesystem::equivalent(file, name, error)) return;
  std::filesystem::path temporary = name;
  temporary += ".tmp";
  std::filesystem::remove(temporary, error);
  std::filesystem::create_hard_link(file, temporary, error);
  if (error) return copy_atomically(file, name);  // a file system without links
  rename_durably(temporary, name);
}

PendingPieces::PendingPieces(std::filesystem::path path, std::uint64_t begin)
    : path_(std::move(path)),
      file_(path_),
      open_(::open(file_.temporary().c_str(), O_WRONLY | O_CLOEXEC)),
      begin_(begin),
      end_(begin) {
  if (!open_) fail_by_system("cannot write " + path_.string(), errno);
}

void PendingPieces::add(std::string_view piece) {
  if (write_all_at(open_.get(), piece.data(), piece.size(), end_) != piece.size())
    fail_by_system("cannot write " + path_.string(), errno);
  // Only a hint: what is on its way to the disk now need not go there at the end.
  ::sync_file_range(open_.get(), static_cast<off64_t>(end_), static_cast<off64_t>(piece.size()),
                    SYNC_FILE_RANGE_WRITE);
  end_ += piece.size();
}

PendingFile& PendingPieces::complete(std::string_view beginning) {
  check(beginning.size() == begin_, "a file's beginning has another size than was said");
  open_ = {};
  overwrite(file_.temporary(), beginning, path_);
  return file_;
}

}  // namespace lockstep
