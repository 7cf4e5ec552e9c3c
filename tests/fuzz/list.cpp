// Fuzzes lists of paths and labels: the first byte says whether CSV or lines.
#include "lockstep/pack/source/source.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {

std::vector<std::string> seeds() {
  return {'\0' + std::string("a.png,cat\n\"b, c.png\",\"a \"\"dog\"\"\"\r\n"),
          '\0' + std::string("\xEF\xBB\xBFid,label,path\n1,cat,a.png\n2,dog,b.png\n"),
          "\1# names\na b.jpg\t0\nc.jpg\t1\n", "\1a.jpg cat\nb.jpg dog\n"};
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  static const Scratch folder;
  static ScratchFile csv(folder, "list.csv"), lines(folder, "list.txt");
  ScratchFile& file = (bytes[0] & 1) == 0 ? csv : lines;
  file.put(bytes.subspan(1));
  pack::SourceSpec spec;
  spec.kind = "list";
  spec.files = {file.path()};
  pack::index_piece(spec, 0, folder.path());
  const auto source = pack::open_source(spec, folder.path());
  for (std::size_t row = 0; row < std::min<std::size_t>(source->rows(), 100); ++row) {
    require_law(!source->file_name(row).empty(), "a row has its path");
    require_law(static_cast<std::size_t>(source->label(row)) < source->classes().size(),
                "a label has its class");
  }
}

}  // namespace lockstep::fuzz
