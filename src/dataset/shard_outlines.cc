#include "dataset/shard_outlines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "shard/mds_scanner.h"
#include "shard/sample_name.h"
#include "shard/tar_outline.h"

namespace millrace {

namespace {

constexpr uint64_t kGain = 4;  // so many times the bytes would be read of the shard
constexpr uint64_t kMaxRefused = 4;
constexpr size_t kMaxCalls = 256;
constexpr uint64_t kColumnsBytes = 64 << 10;  // of the JSON in the head of an MDS shard: nearly always less

}  // namespace

// Represents a shard, and the parts that are read for it.
struct ShardOutlines::Outline {
  struct Part {
    ObjectInfo object;
    ByteRange range;
    Buffer bytes = Buffer(0);
  };

  ~Outline() {
    if (held_bytes != nullptr) *held_bytes -= memory.bytes();
  }
  ByteSpan bytes(size_t part) const { return std::as_const(parts[part].bytes).span(); }

  DataKind kind = DataKind::kTar;
  uint64_t shard_bytes = 0;
  uint64_t samples = 0;     // of MDS, by its index.json
  std::string notes;        // the URI of what is noted
  std::vector<Part> parts;  // tar: the index, the head, the tail; MDS: the head
  bool started = false;
  uint64_t* held_bytes = nullptr;
  Reservation memory;
  size_t in_flight = 0;
  absl::Status status;  // of the reads
  MdsScanner mds;       // has the head
};

ShardOutlines::ShardOutlines(const DatasetPlace& data, MemoryBudget& memory, const ObjectSource& listing,
                             std::stop_token stop)
    : data_(data),
      memory_(memory),
      listing_(listing),
      stop_(std::move(stop)),
      mds_indexes_(data, stop_),
      calls_(stop_) {}

ShardOutlines::~ShardOutlines() = default;

std::shared_ptr<ShardOutlines::Outline> ShardOutlines::BeginTar(const IndexedObject& shard) {
  const ObjectInfo* index = listing_.FindIdx(shard.key.substr(0, shard.key.rfind('.')) + ".idx");
  if (index == nullptr) index = listing_.FindIdx(shard.key + ".idx");
  if (index == nullptr) return nullptr;
  const uint64_t end = std::min(kMaxTarGapBytes, shard.size);
  const ObjectInfo object{.key = data_.Key(shard.key), .size = shard.size, .etag = shard.etag};
  auto outline = std::make_shared<Outline>();
  outline->notes = data_.store->Uri(index->key);
  outline->parts.push_back({.object = *index, .range = {0, index->size}});
  outline->parts.push_back({.object = object, .range = {0, end}});
  outline->parts.push_back({.object = object, .range = {shard.size - end, end}});
  return outline;
}

std::shared_ptr<ShardOutlines::Outline> ShardOutlines::BeginMds(const IndexedObject& shard) {
  const MdsShardEntry* const entry = mds_indexes_.Find(shard.key);
  if (entry == nullptr || entry->bytes != shard.size || entry->samples > kMaxMdsSamples) return nullptr;
  const uint64_t head = (entry->samples + 2) * sizeof(uint32_t) + kColumnsBytes;
  auto outline = std::make_shared<Outline>();
  outline->samples = entry->samples;
  outline->notes =
      data_.store->Uri(data_.Key(shard.key.substr(0, shard.key.rfind('/') + 1) + std::string(kMdsIndexName)));
  outline->parts.push_back({.object = {.key = data_.Key(shard.key), .size = shard.size, .etag = shard.etag},
                            .range = {0, std::min(head, shard.size)}});
  return outline;
}

std::shared_ptr<ShardOutlines::Outline> ShardOutlines::Begin(DataKind kind, const IndexedObject& shard) {
  if (used_ == 0 && refused_ >= kMaxRefused) return nullptr;
  std::shared_ptr<Outline> outline;
  if (kind == DataKind::kTar) outline = BeginTar(shard);
  if (kind == DataKind::kMds) outline = BeginMds(shard);
  if (outline == nullptr) return nullptr;
  uint64_t bytes = 0;
  for (const Outline::Part& part : outline->parts) bytes += part.range.length;
  if (bytes > shard.size / kGain) return nullptr;
  outline->kind = kind;
  outline->shard_bytes = shard.size;
  waiting_.push_back(outline);
  StartWaiting();
  return outline;
}

// Starts the reads. Returns false if there is no room for them.
bool ShardOutlines::Start(const std::shared_ptr<Outline>& begun) {
  Outline& outline = *begun;
  uint64_t bytes = 0;
  for (const Outline::Part& part : outline.parts) bytes += part.range.length;
  const bool first = held_bytes_ == 0;
  if (!first && held_bytes_ + bytes > memory_.limit() / 16) return false;
  outline.memory = memory_.TryReserve(bytes);
  if (!outline.memory) return false;
  held_bytes_ += bytes;
  outline.held_bytes = &held_bytes_;
  outline.started = true;
  for (Outline::Part& part : outline.parts) {
    part.bytes = Buffer(part.range.length);
    if (part.range.length == 0) continue;
    GetOptions get;
    get.range = part.range;
    get.if_match = part.object.etag;
    get.whole = part.range.length == part.object.size;
    get.stop = calls_.stop();
    ++outline.in_flight;
    data_.store->Get(part.object.key, part.bytes.span(), std::move(get),
                     calls_.Add<absl::StatusOr<GetResult>>([begun](const absl::StatusOr<GetResult>& result) {
                       begun->status.Update(result.status());
                       --begun->in_flight;
                       return absl::OkStatus();  // an error is that of its shard, and told in its turn
                     }));
  }
  return true;
}

void ShardOutlines::StartWaiting() {
  while (!waiting_.empty() && calls_.count() < kMaxCalls && Start(waiting_.front())) waiting_.pop_front();
}

absl::Status ShardOutlines::Check(Outline& outline, bool classes) {
  StartWaiting();
  const auto fits = [&]() -> absl::Status {
    if (!outline.started) return absl::ResourceExhaustedError("there is too little memory for it");
    while (outline.in_flight > 0) RETURN_IF_ERROR(calls_.WaitForRoom(calls_.count()));
    RETURN_IF_ERROR(outline.status);
    if (outline.kind == DataKind::kMds) {
      ASSIGN_OR_RETURN(const bool whole, outline.mds.FeedHead(outline.bytes(0)));
      if (!whole) return absl::InvalidArgumentError("the head of the shard is longer than usual");
      if (outline.mds.samples() != outline.samples) {
        return absl::DataLossError(fmt::format("it says that the shard has {} samples, and the shard says {}",
                                               outline.samples, outline.mds.samples()));
      }
    }
    bool has_class = false;
    RETURN_IF_ERROR(Samples(outline, [&](const ShardSample& sample) {
      has_class = has_class || std::any_of(sample.fields.begin(), sample.fields.end(),
                                           [](const ShardField& field) { return field.name == kClassField; });
      return absl::OkStatus();
    }));
    if (classes && has_class) return absl::UnimplementedError("it has no classes, which are wanted");
    return absl::OkStatus();
  };
  const absl::Status status = fits();
  if (stop_.stop_requested()) return absl::CancelledError("reading was interrupted");
  if (!waiting_.empty() && waiting_.front().get() == &outline) waiting_.pop_front();
  // Only the quality of the notes counts: not a lack of memory, nor a store that does not answer.
  if (status.ok()) ++used_;
  if (absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) ++refused_;
  return Annotate(status, outline.notes);
}

absl::Status ShardOutlines::Samples(const Outline& outline, ShardSink each) const {
  if (outline.kind == DataKind::kMds) return MdsScanner(outline.mds).Outline(outline.shard_bytes, each);
  return OutlineTar(AsText(outline.bytes(0)),
                    {.shard_bytes = outline.shard_bytes, .head = outline.bytes(1), .tail = outline.bytes(2)}, each);
}

}  // namespace millrace
