#include "pipeline/batch_outlet.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/life_sign.h"
#include "base/log.h"

namespace millrace {

namespace {

using OutletClock = std::chrono::steady_clock;

// This is the interval at which a waiting consumer looks for the cause: finer than any cause that matters, and cheap.
constexpr std::chrono::milliseconds kLedgerTick{2};

void LogReplaced(const QuarantinedSample& sample) {
  const std::string instead =
      sample.replacement.empty() ? "it is left out" : fmt::format("'{}' takes its place", sample.replacement);
  Log(LogLevel::kWarning, "pipeline",
      fmt::format("{}: {}; {}; further samples that are damaged are in the report, and not logged", sample.uri,
                  sample.reason, instead));
}

}  // namespace

BatchOutlet::BatchOutlet(std::mutex& mutex, const Options& options, Reservation slot_memory, Hooks hooks)
    : mutex_(mutex),
      slot_bytes_(options.slot_bytes),
      slots_(options.slots),
      budget_(options.budget),
      hooks_(std::move(hooks)),
      log_damage_(options.log_damage),
      ring_(options.slot_bytes, options.slots, std::move(slot_memory), [this] {
        const Lock lock(mutex_);
        --held_;
        hooks_.returned();
      }) {
  report_.part_samples.resize(options.parts);
  report_.position = options.start;
}

bool BatchOutlet::Await(Lock* lock, std::chrono::nanoseconds limit) {
  const Time begin = OutletClock::now();
  if (!asked_) {
    ledger_.Begin(begin);
    asked_ = begin;
    hooks_.waits();
  }
  while (!ready()) {
    const std::chrono::nanoseconds left = limit - (OutletClock::now() - begin);
    if (left <= std::chrono::nanoseconds::zero()) return false;
    const StallCause cause = hooks_.cause();
    changed_.wait_for(*lock, std::min<std::chrono::nanoseconds>(left, kLedgerTick));
    ledger_.Charge(cause, OutletClock::now());
  }
  return true;
}

bool BatchOutlet::WaitReady(std::chrono::nanoseconds limit) {
  Lock lock(mutex_);
  return Await(&lock, limit);
}

absl::StatusOr<std::optional<Batch>> BatchOutlet::Next() {
  Lock lock(mutex_);
  Await(&lock, std::chrono::hours(24 * 365));
  ledger_.End(OutletClock::now());
  asked_.reset();
  if (!batches_.empty()) {
    std::optional<Batch> batch = std::move(batches_.front());
    batches_.pop_front();
    ++held_;
    const bool first_damage = log_damage_ && report_.quarantined == 0 && !batch->quarantined.empty();
    report_.Add(*batch);
    hooks_.taken(*batch);
    hooks_.waits();
    lock.unlock();
    ShowLife();
    if (first_damage) LogReplaced(batch->quarantined.front());
    return batch;
  }
  hooks_.waits();
  if (!end_) {
    return absl::ResourceExhaustedError(
        fmt::format("the program holds all {} batches that fit into the {}; release some (copy what you keep, or "
                    "keep only what you need of each), or raise the budget",
                    slots_, budget_));
  }
  if (!end_->ok()) return *end_;
  return std::optional<Batch>();
}

LoaderReport BatchOutlet::report() const {
  const Lock lock(mutex_);
  LoaderReport report = report_;
  report.stalls = ledger_.report();
  report.memory.batch_bytes = ring_.made() * slot_bytes_;
  report.memory.kept_bytes = held_ * slot_bytes_;
  return report;
}

void BatchOutlet::Put(Batch batch) {
  batches_.push_back(std::move(batch));
  changed_.notify_all();
}

void BatchOutlet::End(absl::Status status) {
  end_ = std::move(status);
  changed_.notify_all();
}

}  // namespace millrace
