#include "pipeline/stage_opener.h"

#include <fmt/format.h>
#include <pthread.h>

#include <exception>
#include <utility>

#include "pipeline/loader_facts.h"
#include "pipeline/staged_facts.h"

namespace millrace {

absl::StatusOr<OpenedStage> FindStage(StagedDataset& data, const Stages& stages, const LoaderOptions& options,
                                      uint64_t stage) {
  OpenedStage found{.stage = stage, .dataset = nullptr};
  for (; found.stage < stages.size(); ++found.stage) {
    ASSIGN_OR_RETURN(found.dataset, data.OpenSome(stages.ShardsOf(found.stage)));
    if (found.dataset->index().size() > 0) {
      LoaderOptions checked = options;
      checked.start.reset();
      if (checked.last == LastBatch::kDrop) checked.last = LastBatch::kPad;  // a stage may be smaller than a step
      const absl::Status sound = CheckSamples(*found.dataset, std::move(checked), data.stop());
      RETURN_IF_ERROR(found.stage > 0 ? InLaterStage(sound) : sound);
      return found;
    }
    found.dataset = nullptr;
  }
  if (found.stage > stages.size()) {
    ASSIGN_OR_RETURN(found.dataset, data.OpenAll());
  }
  return found;
}

StageOpener::~StageOpener() {
  if (!completes_) stop_.request_stop();
  {
    const Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void StageOpener::Start(uint64_t first, Begin begin) {
  data_.Continue(stop_.get_token());
  thread_ = std::thread([this, first, begin = std::move(begin)] { Run(first, begin); });
  pthread_setname_np(thread_.native_handle(), "stages");
}

bool StageOpener::Wait(std::chrono::steady_clock::time_point deadline) {
  Lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return opened_.has_value(); });
}

bool StageOpener::ready() {
  const Lock lock(mutex_);
  return opened_.has_value();
}

absl::StatusOr<OpenedStage> StageOpener::Take() {
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return opened_.has_value(); });
  absl::StatusOr<OpenedStage> opened = *std::move(opened_);
  opened_.reset();
  changed_.notify_all();
  return opened;
}

void StageOpener::Retry() {
  thread_.join();  // it ended with the error
  Start(refused_, nullptr);
}

// ---- The thread

absl::StatusOr<uint64_t> StageOpener::Reach(const OpenedStage& from) {
  uint64_t samples = from.dataset->index().size();
  const uint64_t enough = options_.batch * options_.world;
  for (uint64_t stage = from.stage + 1; stage < stages_.size() && samples < enough; ++stage) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> later, data_.OpenSome(stages_.ShardsOf(stage)));
    samples += later->index().size();
  }
  return samples;
}

absl::StatusOr<OpenedStage> StageOpener::Open(uint64_t stage, const Begin& begin) {
  try {
    ASSIGN_OR_RETURN(OpenedStage opened, FindStage(data_, stages_, options_, stage));
    if (options_.last == LastBatch::kDrop && opened.stage < stages_.size()) {
      ASSIGN_OR_RETURN(opened.reach, Reach(opened));
    }
    // If this fails, the consumer tries again, and reports the error.
    if (begin && opened.dataset != nullptr) {
      if (auto loader = begin(*opened.dataset); loader.ok()) opened.loader = *std::move(loader);
    }
    return opened;
  } catch (const std::exception& error) {  // memory is exhausted; this thread must not end the process
    return absl::ResourceExhaustedError(fmt::format("opening a stage failed: {}", error.what()));
  }
}

void StageOpener::Run(uint64_t stage, const Begin& begin) {
  for (bool first = true;; first = false) {
    absl::StatusOr<OpenedStage> opened = Open(stage, first ? begin : nullptr);
    refused_ = stage;
    if (opened.ok()) stage = opened->stage + 1;
    const bool last = !opened.ok() || opened->stage > stages_.size();
    const bool none = opened.ok() && opened->dataset == nullptr;
    Lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || !opened_; });
    if (stopping_) return;
    opened_ = std::move(opened);
    changed_.notify_all();
    if (last) return;
    // One stage is opened ahead, and the whole as soon as all stages have been opened.
    if (none) {
      if (!completes_index_ || (options_.epochs == 1 && !data_.keeps_parts())) return;
      continue;
    }
    changed_.wait(lock, [this] { return stopping_ || !opened_; });
    if (stopping_) return;
  }
}

}  // namespace millrace
