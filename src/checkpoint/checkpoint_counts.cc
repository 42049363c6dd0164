#include "checkpoint/checkpoint_counts.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "net/metrics_text.h"

namespace millrace {

namespace {

double UnixNow() {
  return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
}

}  // namespace

CheckpointCounts::Save::Save(CheckpointCounts& counts, std::string uri) : counts_(counts), uri_(std::move(uri)) {
  counts_.Claimed(uri_);
}

CheckpointCounts::Save::~Save() {
  counts_.End(uri_, std::chrono::duration<double>(Clock::now() - begun_).count(), committed_);
}

CheckpointCounts::Place& CheckpointCounts::PlaceOf(const std::string& uri) {
  const bool is_known = places_.contains(uri) || places_.size() < kMaxPlaces;
  return places_[is_known ? uri : "others"];
}

void CheckpointCounts::Opened(const std::string& uri) {
  const std::lock_guard lock(mutex_);
  PlaceOf(uri);
}

void CheckpointCounts::Claimed(const std::string& uri) {
  const std::lock_guard lock(mutex_);
  if (Place& place = PlaceOf(uri); place.newest <= 0) place.newest = UnixNow();
}

void CheckpointCounts::End(const std::string& uri, double seconds, bool committed) {
  const std::lock_guard lock(mutex_);
  Place& place = PlaceOf(uri);
  if (!committed) {
    ++place.failures;
    return;
  }
  ++place.saves;
  place.seconds += seconds;
  place.last_seconds = seconds;
  place.newest = UnixNow();
}

void CheckpointCounts::Collect(MetricsText* text) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [uri, place] : places_) {
    const MetricLabels labels{{"checkpoints", uri}};
    text->Counter("millrace_checkpoint_saves_total", "Checkpoints that were committed.", labels,
                  static_cast<double>(place.saves));
    text->Counter("millrace_checkpoint_save_failures_total", "Saves that have failed or were abandoned.", labels,
                  static_cast<double>(place.failures));
    text->Counter("millrace_checkpoint_save_seconds_total", "Time of the saves that were committed.", labels,
                  place.seconds);
    text->Gauge("millrace_checkpoint_last_save_seconds", "Time of the newest of them.", labels, place.last_seconds);
    if (place.newest <= 0) continue;
    text->Gauge("millrace_checkpoint_newest_timestamp_seconds",
                "When the newest checkpoint of this process was committed, as Unix time; before the first one: when "
                "this process began to save.",
                labels, place.newest);
  }
}

}  // namespace millrace
