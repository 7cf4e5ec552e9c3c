#include "train/files/checkpoint_writer.hpp"

#include <utility>

#include <fmt/format.h>

#include "lockstep/base/clock.hpp"

namespace lockstep::train {

CheckpointWriter::CheckpointWriter(const model::CheckpointDirectory& directory, Spec spec)
    : directory_(directory),
      spec_(std::move(spec)),
      spare_(spec_.copies > 0 ? std::make_shared<h5::SpareMemory>() : nullptr),
      writer_(spec_.enter) {}

/// The best comes first: no checkpoint may count a best one that does not exist.
std::vector<std::filesystem::path> CheckpointWriter::paths(KeptAs as, std::uint64_t step) const {
  std::vector<std::filesystem::path> all;
  if (as.best) all.push_back(directory_.best_of(step));
  if (as.newest) all.push_back(directory_.path_of(step));
  return all;
}

/// True if one gave way that was to be kept as the newest: then the newer one takes its place. Only
/// a best replaces a best that waits: any later state still counts that one.
bool CheckpointWriter::make_room(bool best) {
  const std::size_t most = spec_.copies > 0 ? spec_.copies - 1 : 0;
  bool newest = false;
  if (best && writer_.unfinished() > most) {
    for (std::size_t left = writer_.drop_waiting(); left > 0; --left) {
      newest = newest || saved_.back().as.newest;
      saved_.pop_back();
    }
  }
  writer_.wait(most);
  return newest;
}

void CheckpointWriter::begin(KeptAs as, const model::CheckpointHeader& header,
                             const backend::Parameters& parameters,
                             std::vector<model::ExchangePart> parts) {
  as.newest = make_room(as.best) || as.newest;
  Draft draft{.step = header.progress.step,
              .as = as,
              .paths = paths(as, header.progress.step),
              .image = nullptr,
              .file = nullptr};
  draft.image = std::make_shared<model::CheckpointImage>(
      model::make_checkpoint(draft.paths.front(), header, parameters, spare_, std::move(parts)));
  if (draft.image->has_parts())
    draft.file = std::make_shared<PendingPieces>(draft.paths.front(), draft.image->bytes());
  draft_ = std::move(draft);
}

void CheckpointWriter::add(std::string_view bytes) {
  draft_->image->count(bytes);
  draft_->file->add(bytes);
}

void CheckpointWriter::end(double began_s) {
  auto [step, as, all, image, file] = std::move(*draft_);
  draft_.reset();
  writer_.add({.name = fmt::format("the checkpoint of step {}", step),
               .number = step,
               .paths = std::move(all),
               .begun = std::move(file),
               .bytes = [image = std::move(image)] { return image->seal(); },
               .before = spec_.before,
               .durable =
                   [this, as = as, step = step] {
                     if (spec_.require_newest) spec_.require_newest();
                     if (as.best) directory_.name_best(step);
                     directory_.prune();
                   }});
  if (spec_.copies == 0) writer_.wait();
  saved_.push_back({.step = step, .as = as, .blocked_ms = 1e3 * (now_s() - began_s)});
}

std::vector<observe::CheckpointRecord> CheckpointWriter::poll() {
  std::vector<observe::CheckpointRecord> records;
  for (const BackgroundWriter::Written& one : writer_.poll()) {
    records.push_back({.step = saved_.front().step,
                       .bytes = one.bytes,
                       .blocked_ms = saved_.front().blocked_ms,
                       .written_ms = 1e3 * one.seconds});
    saved_.pop_front();
  }
  return records;
}

}  // namespace lockstep::train
