#include "service/kept_batches.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/buffer.h"
#include "base/crypto.h"

namespace millrace {

namespace {

// Beside arrays and values, this is kept of a batch, and of each row its key.
constexpr uint64_t kKeptOverhead = 1024;
constexpr uint64_t kKeptRowOverhead = 64;

bool IsTheSameEachTime(const ImageSpec& image) {
  return !image.augment && image.transforms.empty();
}

uint64_t BytesOf(const Batch& batch) {
  uint64_t bytes = kKeptOverhead + batch.value_bytes;
  for (const BatchArray& array : batch.arrays) bytes += array.bytes.size();
  for (const std::string& key : batch.keys) bytes += key.size() + kKeptRowOverhead;
  for (const BatchValues& values : batch.values) {
    for (const std::string& row : values.rows) bytes += row.size() + kKeptRowOverhead;
  }
  return bytes;
}

}  // namespace

struct KeptBatches::Kept {
  Buffer memory;
  Batch batch;  // as it was in its epoch; its arrays are in `memory`
  uint32_t crc = 0;
  bool ends_epoch = false;
};

std::string KeptBatches::NameOf(const StreamSpec& spec) const {
  const LoaderOptions& options = spec.options;
  const bool same_images = options.fields.empty()
                               ? IsTheSameEachTime(options.image)
                               : std::all_of(options.fields.begin(), options.fields.end(), [](const BatchField& field) {
                                   return field.kind != BatchField::Kind::kImage || IsTheSameEachTime(field.image);
                                 });
  // A digest is one of samples in their epoch; a damaged sample is replaced by another one in each,
  // and functions may draw random numbers.
  const bool is_kept = most_bytes_ > 0 && !spec.function && options.shuffle == Shuffle::kNone && !options.mix &&
                       same_images && options.digest == DigestOf::kNone && options.bad_samples == BadSamples::kFail;
  if (!is_kept) return "";
  StreamSpec same = spec;
  same.compress = false;
  same.options.start = Position{};
  same.options.epochs = 0;
  same.options.memory_bytes = 0;
  Xxh3Stream hash;
  hash.Update(AsBytes(EncodeStreamSpec(same)));
  return hash.Digest().Hex();
}

std::optional<KeptBatches::Found> KeptBatches::Find(const std::string& name, const Position& at, Time now) {
  std::shared_ptr<const Kept> kept;
  {
    const std::lock_guard lock(mutex_);
    const auto stream = streams_.find(name);
    if (name.empty() || stream == streams_.end()) return std::nullopt;
    stream->second.last_used = now;
    const auto found = stream->second.batches.find(at.consumed);
    if (found == stream->second.batches.end()) return std::nullopt;
    kept = found->second;
  }
  Found found{kept->batch, kept->crc};
  found.batch.epoch = at.epoch;
  found.batch.position = {at.epoch, kept->batch.position.consumed, at.fingerprint};
  if (kept->ends_epoch) found.batch.position = {at.epoch + 1, 0, at.fingerprint};
  found.batch.memory = std::const_pointer_cast<Kept>(kept);
  return found;
}

bool KeptBatches::MakeRoom(const std::string& name, uint64_t bytes, Time now) {
  if (bytes > most_bytes_) return false;
  for (auto at = streams_.begin(); at != streams_.end() && bytes_ + bytes > most_bytes_;) {
    const auto stream = at++;
    if (stream->first == name || now - stream->second.last_used < kIdle) continue;
    bytes_ -= stream->second.bytes;
    streams_.erase(stream);
  }
  return bytes_ + bytes <= most_bytes_;
}

void KeptBatches::Keep(const std::string& name, const Position& at, const Batch& batch, uint32_t crc, Time now) {
  // A start after the last whole batch of an epoch yields the first one of the next.
  if (name.empty() || batch.epoch != at.epoch || !batch.quarantined.empty()) return;
  const uint64_t bytes = BytesOf(batch);
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto stream = streams_.find(name);
    if (stream != streams_.end() && stream->second.batches.contains(at.consumed)) return;
    if (!MakeRoom(name, bytes, now)) return;
    bytes_ += bytes;
    Stream& into = streams_[name];
    if (into.number == 0) into.number = ++made_;
    number = into.number;
    into.bytes += bytes;
    into.last_used = now;
  }
  auto kept = std::make_shared<Kept>();
  try {
    uint64_t array_bytes = 0;
    for (const BatchArray& array : batch.arrays) array_bytes += array.bytes.size();
    kept->memory = Buffer(array_bytes);
    kept->batch = batch;
    kept->batch.memory = nullptr;
    kept->batch.slot = {};
    kept->crc = crc;
    kept->ends_epoch = batch.last_of_epoch;
    MutableByteSpan left = kept->memory.span();
    for (BatchArray& array : kept->batch.arrays) {
      if (!array.bytes.empty()) std::memcpy(left.data(), array.bytes.data(), array.bytes.size());
      const size_t size = array.bytes.size();
      array.bytes = left.first(size);
      left = left.subspan(size);
    }
  } catch (const std::bad_alloc&) {
    kept = nullptr;
  }
  const std::lock_guard lock(mutex_);
  const auto stream = streams_.find(name);
  // If it was idle for a minute, its bytes went with it.
  if (stream == streams_.end() || stream->second.number != number) return;
  const bool is_new = kept != nullptr && stream->second.batches.emplace(at.consumed, kept).second;
  if (is_new) return;
  bytes_ -= bytes;
  stream->second.bytes -= bytes;
}

}  // namespace millrace
