#include "lockstep/pack/source/source.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/text/words.hpp"
#include "pack/archive/tar.hpp"
#include "pack/index/layout.hpp"
#include "pack/source/source_files.hpp"

namespace lockstep::pack {
namespace fs = std::filesystem;

namespace {

/// The original archives unpack into a sub-folder; both it and its parent are accepted.
fs::path inside(const fs::path& folder, const char* name) {
  return fs::is_directory(folder / name) ? folder / name : folder;
}

/// Pickles, which only Python reads.
void require_no_python_cifar(const fs::path& folder) {
  for (const char* inner : {"", "cifar-10-batches-py", "cifar-100-python"}) {
    const fs::path at = *inner == '\0' ? folder : folder / inner;
    const bool ten = fs::exists(at / "data_batch_1") && fs::exists(at / "batches.meta");
    const bool hundred =
        fs::exists(at / "train") && fs::exists(at / "meta") && fs::is_regular_file(at / "train");
    require(!ten && !hundred,
            fmt::format("{}: is CIFAR's Python version, whose files are not read: take the binary "
                        "one of the same page (cifar-{}-binary.tar.gz), or write shards in Python "
                        "with write_shards() of data/lockstep.py",
                        at.string(), ten ? 10 : 100));
  }
}

bool has_idx_files(const fs::path& folder) {
  for (const std::string& name : file_names(folder))
    if (name.find("idx3-ubyte") != std::string::npos) return true;
  return false;
}

bool named_as_tar(const fs::path& path) {
  return has_ending(path, {".tar", ".tgz", ".tar.gz", ".tzst", ".tar.zst", ".tar.zstd", ".txz",
                           ".tar.xz", ".tbz2", ".tar.bz2"});
}

bool named_as_hdf5(const fs::path& path) { return has_ending(path, {".h5", ".hdf5", ".hdf"}); }

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

/// The input of one index.
struct IndexInput {
  fs::path path;
  Split split = Split::training;
};

std::vector<IndexInput> pieces_of(const SourceSpec& spec) {
  std::vector<IndexInput> pieces;
  if (spec.kind != "classes" && spec.kind != "list" && spec.kind != "tar") return pieces;
  for (const fs::path& path : spec.files) pieces.push_back({path, Split::training});
  for (const fs::path& path : spec.validation_files) pieces.push_back({path, Split::validation});
  return pieces;
}

fs::path index_path(const fs::path& folder, std::size_t piece) {
  return folder / fmt::format("{:05}.index", piece);
}

FileStamp stamp_now(const fs::path& path) {
  const Descriptor file = open_regular(path);
  require(static_cast<bool>(file), fmt::format("{}: {}", path.string(), std::strerror(errno)));
  return stamp_of(file.get(), path);
}

/// True when `path` is the index of this very archive, and its unpacked copy exists.
bool is_index_of(const fs::path& path, const IndexInput& piece, const FileStamp& stamp) {
  if (!fs::exists(path)) return false;
  try {
    const IndexFile index(path);
    return index.origin() == piece.path && index.split() == piece.split && index.stamp() == stamp &&
           fs::exists(index.content());
  } catch (const InputError&) {
    return false;
  }
}

void index_archive(const SourceSpec& spec, const IndexInput& piece, const fs::path& path) {
  const FileStamp stamp = stamp_now(piece.path);
  if (is_index_of(path, piece, stamp)) return;
  fs::remove(path);  // before the files that it describes
  const Compression how = compression_of(piece.path);
  fs::path content = piece.path;
  if (how != Compression::none) {
    content = fs::path(path).replace_extension(".tar");
    unpack(piece.path, how, content);
  }
  IndexWriter index(path);
  index.set_split(piece.split);
  const bool validation = piece.split == Split::validation;
  index_tar({.tar = piece.path,
             .content = content,
             .split = piece.split,
             .labelled = spec.labelled,
             .names_are_given = !spec.class_names.empty(),
             .alone = (validation ? spec.validation_files : spec.files).size() == 1},
            index);
  require(stamp_now(piece.path) == stamp,
          fmt::format("{}: has changed while it was read", piece.path.string()));
  index.finish(piece.path, content, stamp);
}

}  // namespace

std::string Source::read_file(std::size_t) const { return {}; }

std::string Source::fingerprint() const {
  std::uint32_t hash = 0;
  const auto add = [&](const std::string& text) {
    hash = crc32c(text.c_str(), text.size() + 1, hash);
  };
  for (std::size_t row = 0; row < rows(); ++row) add(name(row) + std::to_string(label(row)));
  for (const std::string& name : classes()) add(name);
  return fmt::format("{} images, hash {:08x}", rows(), hash);
}

std::vector<std::string> source_kinds() {
  return {"classes", "list", "tar", "shards", "cifar10", "cifar100", "idx", "shapes"};
}

bool is_image_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) && named_as_image(path.filename().string());
}

std::string guess_source(const fs::path& path) {
  std::error_code reason;
  require(fs::exists(path, reason), fmt::format("{}: no such file or folder", path.string()));
  require(!is_image_file(path),
          fmt::format("{}: is one image; name the folder that holds the class folders, a list or "
                      "tars",
                      path.string()));
  if (fs::is_regular_file(path, reason))
    return named_as_tar(path) ? "tar" : named_as_hdf5(path) ? "shards" : "list";
  require_folder(path);
  if (has_shards(path) || has_shards(path / "train")) return "shards";
  if (fs::exists(inside(path, "cifar-10-batches-bin") / "data_batch_1.bin")) return "cifar10";
  if (fs::exists(inside(path, "cifar-100-binary") / "train.bin")) return "cifar100";
  require_no_python_cifar(path);
  return has_idx_files(path) ? "idx" : "classes";
}

std::size_t index_count(const SourceSpec& spec) { return pieces_of(spec).size(); }

bool has_index(std::size_t piece, const fs::path& folder) {
  const fs::path path = index_path(folder, piece);
  if (!fs::exists(path)) return false;
  try {
    const IndexFile whole(path);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

void index_piece(const SourceSpec& spec, std::size_t piece, const fs::path& folder) {
  const IndexInput what = pieces_of(spec)[piece];
  const fs::path path = index_path(folder, piece);
  if (spec.kind == "tar") return index_archive(spec, what, path);
  IndexWriter index(path);
  if (spec.kind == "list") {
    const fs::path root = spec.root.empty() ? folder_of(what.path) : spec.root;
    const bool csv = has_ending(what.path, {".csv", ".tsv"});
    if (spec.labelled)
      (csv ? index_csv : index_list)(what.path, root, what.split, index);
    else
      index_paths(what.path, root, index);
    return index.finish(root, {}, {});
  }
  if (spec.labelled)
    index_class_folders(what.path, what.split, !spec.class_names.empty(), index);
  else
    index_images(what.path, index);
  index.finish(is_image_file(what.path) ? folder_of(what.path) : what.path, {}, {});
}

std::unique_ptr<Source> open_source(const SourceSpec& spec, const fs::path& folder) {
  const std::size_t pieces = index_count(spec);
  if (pieces > 0) {
    std::vector<IndexFile> indexes;
    for (std::size_t piece = 0; piece < pieces; ++piece)
      indexes.emplace_back(index_path(folder, piece));
    std::unique_ptr<Source> images = open_indexed(spec, std::move(indexes));
    return spec.targets.empty() ? std::move(images) : with_targets(std::move(images), spec);
  }
  check(spec.files.size() == 1, "one folder");
  const fs::path& path = spec.files[0];
  require(spec.class_names.empty() && (spec.validation_files.empty() || spec.kind == "shards"),
          fmt::format("{}: {} has its own class names and its own validation split", path.string(),
                      spec.kind));
  if (spec.kind == "shards") return open_shards(spec);
  require_folder(path);
  if (spec.kind == "cifar10") return open_cifar10(inside(path, "cifar-10-batches-bin"));
  if (spec.kind == "cifar100") return open_cifar100(inside(path, "cifar-100-binary"));
  if (spec.kind == "idx") return open_idx(path);
  throw InputError(fmt::format("no images of kind \"{}\" can be read; known are {}", spec.kind,
                               join(source_kinds(), ", ")));
}

void require_folder(const fs::path& folder) {
  std::error_code reason;
  const fs::file_status status = fs::status(folder, reason);
  require(fs::exists(status), fmt::format("{}: no such folder{}", folder.string(),
                                          reason ? " (" + reason.message() + ")" : ""));
  require(fs::is_directory(status),
          fmt::format("{}: is a file; name the folder that holds the images", folder.string()));
}

bool has_ending(const fs::path& path, std::initializer_list<std::string_view> endings) {
  std::string name = path.filename().string();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

bool named_as_image(std::string_view name) {
  return has_ending(name.substr(name.rfind('/') + 1), {".jpg", ".jpeg", ".png", ".webp", ".bmp"});
}

bool is_left_out(std::string_view name) { return name.starts_with('.') || is_system_folder(name); }

bool holds_images(const fs::directory_entry& entry) {
  std::error_code reason;
  if (!entry.is_directory(reason)) return false;
  for (fs::directory_iterator at(entry.path(), reason), end; !reason && at != end;
       at.increment(reason)) {
    if (named_as_image(at->path().filename().string())) return true;
  }
  return false;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code reason;
  const bool folder = entry.is_directory(reason);
  // A link that leads nowhere is an error, or skipped, when it is read.
  require(!reason || reason == std::errc::no_such_file_or_directory ||
              (reason == std::errc::too_many_symbolic_link_levels &&
               named_as_image(entry.path().filename().string())),
          fmt::format("{}: {}", entry.path().string(), reason.message()));
  if (folder && entry.is_symlink()) {
    const fs::path target = fs::canonical(entry.path(), reason);
    const fs::path here = fs::canonical(entry.path().parent_path(), reason);
    const auto [end, other] = std::mismatch(target.begin(), target.end(), here.begin(), here.end());
    require(end != target.end(),
            fmt::format("{}: is a link to a folder that contains it", entry.path().string()));
  }
  return folder;
}

std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : sorted_entries(folder))
    if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
  return names;
}

std::vector<fs::directory_entry> sorted_entries(const fs::path& folder, Hidden hidden) {
  std::error_code reason;
  std::vector<fs::directory_entry> entries;
  for (fs::directory_iterator at(folder, reason), end; !reason && at != end; at.increment(reason))
    if (hidden == Hidden::named || !at->path().filename().string().starts_with('.'))
      entries.push_back(*at);
  require(!reason, fmt::format("{}: {}", folder.string(), reason.message()));
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace lockstep::pack
