#include "volume/volume_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

constexpr int kMaxFailures = 10;  // in a row
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(15);
constexpr absl::Duration kMaxUnseen = absl::Minutes(5);

bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsFailedPrecondition(status) || absl::IsNotFound(status);
}

bool Shows(const VolumeSight& sight, const std::string& id) {
  const auto is = [&id](const auto& one) { return one.id == id; };
  return std::any_of(sight.volumes.begin(), sight.volumes.end(), is) ||
         std::any_of(sight.snapshots.begin(), sight.snapshots.end(), is);
}

/// Makes one wait after the other, the longer the longer nothing changes.
class Waiting {
 public:
  explicit Waiting(VolumeWorld& world) : world_(world) {}

  // Returns false if the same thing was waited for longer than `limit`.
  bool For(const std::string& what, absl::Duration limit) {
    const absl::Time now = world_.Now();
    if (what != what_) {
      what_ = what;
      since_ = now;
      pause_ = kFirstPause;
    }
    if (now - since_ > limit) return false;
    world_.Sleep(pause_);
    pause_ = std::min(pause_ * 1.5, kLongestPause);
    return true;
  }
  void Reset() { what_.clear(); }

 private:
  VolumeWorld& world_;
  std::string what_;
  absl::Time since_;
  absl::Duration pause_ = kFirstPause;
};

}  // namespace

absl::StatusOr<VolumeAction> RunVolumeJob(VolumeWorld& world, const VolumeDecision& decide,
                                          const std::function<void(const std::string&)>& say) {
  Waiting waiting(world);
  int failures = 0;
  std::string made;  // and not seen yet: EC2 shows some things late, and they must not be made twice
  std::string last;  // of what was done
  std::string said;
  const auto tell = [&](const std::string& text) {
    if (text != said) say(text);
    said = text;
  };
  // Returns OK if it is to be tried again.
  const auto failed = [&](const absl::Status& status) {
    if (!MayPass(status) || ++failures >= kMaxFailures) return status;
    tell(fmt::format("{}; it is tried again", ToStd(status.message())));
    waiting.For(fmt::format("failure: {}", ToStd(status.message())), absl::InfiniteDuration());
    return absl::OkStatus();
  };
  for (;;) {
    const absl::StatusOr<VolumeSight> sight = world.Look();
    if (!sight.ok()) {
      RETURN_IF_ERROR(failed(sight.status()));
      continue;
    }
    if (!made.empty() && !Shows(*sight, made)) {
      if (waiting.For("unseen " + made, kMaxUnseen)) continue;
      return absl::UnavailableError(fmt::format("EC2 has made {} and does not show it; try again later", made));
    }
    made.clear();
    VolumeAction action = decide(*sight);
    if (action.kind == VolumeAction::Kind::kFail) return action.status;
    if (action.kind == VolumeAction::Kind::kWait) {
      tell("waiting: " + action.text);
      if (waiting.For(action.text, action.limit)) continue;
      return absl::UnavailableError(
          fmt::format("nothing has changed for {}: {}", absl::FormatDuration(action.limit), action.text));
    }
    tell(action.text);
    if (action.kind == VolumeAction::Kind::kDone) return action;
    absl::StatusOr<std::string> done = world.Do(action);
    if (!done.ok()) {
      RETURN_IF_ERROR(failed(done.status()));
      continue;
    }
    made = *std::move(done);
    failures = 0;
    if (action.text != last) {
      waiting.Reset();
    } else if (!waiting.For("again: " + last, kMaxUnseen)) {
      return absl::UnavailableError(fmt::format("EC2 does not show the effect of this: {}", last));
    }
    last = action.text;
  }
}

}  // namespace millrace
