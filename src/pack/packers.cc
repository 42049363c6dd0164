#include "pack/packers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "base/size.h"
#include "net/runtime.h"

namespace millrace {

namespace {

constexpr int kMaxWriting = 8;
constexpr uint64_t kPackerBytes = 64 << 20;     // what the buffers of one packer make good use of
constexpr uint64_t kFewPackerBytes = 32 << 20;  // with less, fewer of them do better
constexpr uint64_t kLeastPackerBytes = 512 << 10;

// Returns the bytes that a packer holds of a shard: its entries in the index, and the data that its encoder keeps of
// each sample (offsets, lines of an .idx). If the format needs it, also the shard itself.
uint64_t HeldOfShard(const PackPlan& plan, const ShardEncoder& encoder) {
  constexpr uint64_t kEntryCopies = 3;  // as they grow, and as the fragment that is written
  constexpr uint64_t kKeptOfSample = 64;
  constexpr uint64_t kShardCopies = 3;
  const bool keeps = encoder.holds() != ShardEncoder::Holds::kNothing;
  return kEntryCopies * plan.most_entries + (keeps ? kKeptOfSample * plan.most_samples : 0) +
         (encoder.holds() == ShardEncoder::Holds::kShard ? kShardCopies * plan.largest_shard : 0);
}

// The bytes that a packer holds beside its buffers and the above: samples that are converted or encoded whole, and the
// parts of an upload of unknown size.
uint64_t HeldBytes(const PackPlan& plan, const ShardEncoder& encoder, const Location& destination,
                   const ImageChange& images) {
  constexpr uint64_t kSampleCopies =
      9;  // as stored, by values, gathered, encoded, as a record; strings double as they grow
  constexpr uint64_t kUploadBytes = 40 << 20;  // StreamWriter; elsewhere it holds little
  const bool whole_samples = plan.converts || encoder.holds() != ShardEncoder::Holds::kNothing;
  const bool uploads = destination.store->traits().is_remote();
  const bool sizes_known = encoder.IsExact() && !plan.converts;
  return HeldOfShard(plan, encoder) + (whole_samples ? kSampleCopies * plan.largest_sample : 0) +
         (uploads && !sizes_known ? kUploadBytes : 0) + (images.empty() ? 0 : kReencodeBytes);
}

}  // namespace

absl::StatusOr<PackerMemory> ReserveForPackers(MemoryBudget& budget, const PackPlan& plan, const ShardEncoder& encoder,
                                               const Location& destination, const ImageChange& images) {
  const uint64_t held = HeldBytes(plan, encoder, destination, images);
  const uint64_t limit = budget.limit();
  PackerMemory memory;
  memory.writing = std::clamp(UsableCpus() + 1, 2, kMaxWriting);
  memory.count =
      std::min<uint64_t>({plan.shards(), 2 * static_cast<uint64_t>(memory.writing), limit / (held + kFewPackerBytes)});
  memory.count = std::max<uint64_t>(memory.count, 1);
  const uint64_t each = std::min(held + kPackerBytes, limit / memory.count);
  if (each >= held + kLeastPackerBytes) memory.reserved = budget.TryReserve(each * memory.count);
  if (!memory.reserved) {
    return absl::ResourceExhaustedError(fmt::format(
        "packing needs {} of memory{}; {} of {} are in use: raise --memory{}",
        FormatSize(std::max(each, held + kLeastPackerBytes)),
        held == 0 ? "" : fmt::format(", {} of them for whole samples, shards and their index", FormatSize(held)),
        FormatSize(budget.used()), FormatSize(limit),
        HeldOfShard(plan, encoder) > held / 4 ? ", or lower --shard-size" : ""));
  }
  memory.share = each - held;
  return memory;
}

Packers::Packers(const PackWork& work, const PackerMemory& memory, const ProgressFn& progress, std::stop_token stop,
                 std::vector<uint64_t> shards)
    : work_(work),
      memory_(memory),
      shards_(std::move(shards)),
      turns_(memory.writing),
      progress_(progress),
      on_stop_(std::move(stop), [this] { stop_.request_stop(); }) {
  for (const uint64_t shard : shards_) total_ += work.plan.bytes[shard];
}

absl::Status Packers::Run(std::vector<SkippedSample>* skipped) {
  const uint64_t count = std::min<uint64_t>(memory_.count, shards_.size());
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < count; ++i) threads.emplace_back([this] { PackSome(); });
  for (std::thread& thread : threads) thread.join();
  for (auto& [shard, samples] : skipped_) std::move(samples.begin(), samples.end(), std::back_inserter(*skipped));
  return status_;
}

void Packers::PackSome() {
  MemoryBudget memory(memory_.share);
  ShardPacker packer(
      work_, memory, turns_, [this](int64_t bytes) { Advance(bytes); }, stop_.get_token());
  while (!stop_.stop_requested()) {
    const size_t next = next_.fetch_add(1);
    if (next >= shards_.size()) return;
    std::vector<SkippedSample> skipped;
    const absl::Status status = packer.Pack(shards_[next], &skipped);
    std::lock_guard lock(mutex_);
    if (!skipped.empty()) skipped_.emplace(shards_[next], std::move(skipped));
    if (status.ok()) continue;
    if (status_.ok()) status_ = status;
    stop_.request_stop();
  }
  std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = absl::CancelledError("packing was interrupted");
}

void Packers::Advance(int64_t bytes) {
  std::lock_guard lock(progress_mutex_);
  done_ += bytes;
  progress_.Update(static_cast<uint64_t>(done_), total_);
}

}  // namespace millrace
