#include "diagnose/synthetic_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decode/synth_image.h"
#include "shard/tar_writer.h"
#include "store/completion.h"

namespace millrace {

namespace {

// Images that are made side by side and then written. Enough for all CPUs of a large machine.
constexpr uint64_t kTogether = 64;

/// Writes members to one shard after another.
class ShardSequence {
 public:
  ShardSequence(const Location& place, uint64_t shard_bytes) : place_(place), shard_bytes_(shard_bytes) {}

  absl::Status Add(uint64_t n, uint64_t label, const std::string& jpeg) {
    if (!writer_) {
      const std::string key = place_.Key(fmt::format("shard-{:06}.tar", report_.shards));
      ASSIGN_OR_RETURN(writer_, place_.store->Write(key, {.content_type = "application/x-tar"}));
      written_ = 0;
    }
    std::string bytes;
    const std::string key = fmt::format("{:08}", n);
    RETURN_IF_ERROR(AppendMember(key + ".cls", std::to_string(label), bytes));
    RETURN_IF_ERROR(AppendMember(key + ".jpg", jpeg, bytes));
    RETURN_IF_ERROR(Append(bytes));
    return written_ >= shard_bytes_ ? End() : absl::OkStatus();
  }

  absl::Status End() {
    if (!writer_) return absl::OkStatus();
    std::string end;
    AppendTarEnd(end);
    RETURN_IF_ERROR(Append(end));
    RETURN_IF_ERROR(writer_->Commit().status());
    writer_.reset();
    ++report_.shards;
    return absl::OkStatus();
  }

  const SyntheticReport& report() const { return report_; }

 private:
  static absl::Status AppendMember(const std::string& name, const std::string& data, std::string& out) {
    RETURN_IF_ERROR(AppendTarHeader(out, name, data.size()));
    out += data;
    AppendTarPadding(out, data.size());
    return absl::OkStatus();
  }

  absl::Status Append(const std::string& bytes) {
    RETURN_IF_ERROR(writer_->Append(AsBytes(bytes)));
    written_ += bytes.size();
    report_.bytes += bytes.size();
    return absl::OkStatus();
  }

  const Location place_;
  const uint64_t shard_bytes_;
  std::unique_ptr<ObjectWriter> writer_;
  uint64_t written_ = 0;  // of the shard
  SyntheticReport report_;
};

/// Objects class-NNN/NNNNNNNN.jpg, all at once. The images are those from number `first` on.
absl::Status PutImages(const Location& place, uint64_t first, uint64_t classes, std::span<const std::string> jpegs,
                       SyntheticReport* report) {
  std::vector<Completion<absl::StatusOr<ObjectInfo>>> done(jpegs.size());
  for (size_t i = 0; i < jpegs.size(); ++i) {
    const uint64_t n = first + i;
    place.store->Put(place.Key(fmt::format("class-{:03}/{:08}.jpg", n % classes, n)), AsBytes(jpegs[i]),
                     {.content_type = "image/jpeg"}, done[i].Callback());
    ++report->shards;
    report->bytes += jpegs[i].size();
  }
  absl::Status first_failure;
  for (Completion<absl::StatusOr<ObjectInfo>>& one : done) first_failure.Update(one.Wait().status());
  return first_failure;
}

}  // namespace

absl::StatusOr<SyntheticReport> WriteSyntheticShards(Runtime& runtime, const Location& place,
                                                     const SyntheticShards& settings,
                                                     const std::function<void(uint64_t images)>& progress,
                                                     const std::stop_token& stop) {
  const ImageSynth synth(settings.seed);
  ShardSequence shards(place, settings.shard_bytes);
  SyntheticReport objects;
  std::vector<std::string> jpegs(kTogether);
  std::vector<absl::Status> made_well(kTogether);
  for (uint64_t first = 0; first < settings.samples; first += kTogether) {
    if (stop.stop_requested()) return absl::CancelledError("making the synthetic data set was interrupted");
    const uint64_t count = std::min(kTogether, settings.samples - first);
    std::latch made(static_cast<std::ptrdiff_t>(count));
    for (uint64_t i = 0; i < count; ++i) {
      runtime.cpu().Submit([&, i] {
        absl::StatusOr<std::string> jpeg = SynthJpeg(synth, first + i, settings.image_bytes);
        made_well[i] = jpeg.status();
        if (jpeg.ok()) jpegs[i] = *std::move(jpeg);
        made.count_down();
      });
    }
    made.wait();
    for (uint64_t i = 0; i < count; ++i) RETURN_IF_ERROR(made_well[i]);
    if (settings.shard_bytes == 0) {
      RETURN_IF_ERROR(PutImages(place, first, settings.classes, {jpegs.data(), count}, &objects));
    } else {
      for (uint64_t i = 0; i < count; ++i) {
        RETURN_IF_ERROR(shards.Add(first + i, (first + i) % settings.classes, jpegs[i]));
      }
    }
    if (progress) progress(first + count);
  }
  RETURN_IF_ERROR(shards.End());
  return settings.shard_bytes == 0 ? objects : shards.report();
}

}  // namespace millrace
