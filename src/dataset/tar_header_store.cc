#include "dataset/tar_header_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/buffer.h"
#include "s3/error.h"
#include "shard/tar_format.h"
#include "shard/tar_outline.h"

namespace millrace {

namespace {

constexpr uint64_t kBits = 64;

}  // namespace

// Represents one GET, and one of the headers in front of it if they are not known.
struct TarHeaderStore::Read : std::enable_shared_from_this<TarHeaderStore::Read> {
  // Represents a file of a sample, and the bytes in front of it.
  struct Expected {
    std::string key;
    std::string field;
    uint64_t size = 0;
    ByteRange gap;  // of the shard
  };

  void Start() {
    left.store(front ? 2 : 1);
    if (options.damaged != nullptr) options.damaged->clear();
    GetOptions get = options;
    store->below_.Get(key, into, std::move(get), [self = shared_from_this()](absl::StatusOr<GetResult> got) {
      if (got.ok()) {
        self->result = *got;
      } else {
        self->Fail(got.status());
      }
      self->End();
    });
    if (!front) return;
    GetOptions headers;
    headers.range = front->gap;
    headers.if_match = options.if_match;
    headers.stop = options.stop;
    store->below_.Get(key, headers_before.span(), std::move(headers),
                      [self = shared_from_this()](const absl::StatusOr<GetResult>& got) {
                        if (!got.ok()) self->Fail(got.status());
                        self->End();
                      });
  }

  void Fail(const absl::Status& error) {
    const std::lock_guard lock(mutex);
    status.Update(error);
  }

  const Expected* FirstWrong() const {
    const auto fits = [](const Expected& file, ByteSpan gap) {
      return FitsTarMember(gap, {.key = file.key, .field = file.field}, file.size);
    };
    if (front && !fits(*front, std::as_const(headers_before).span())) return &*front;
    for (const Expected& file : inside) {
      if (!fits(file, into.subspan(file.gap.offset - options.range.offset, file.gap.length))) return &file;
    }
    return nullptr;
  }

  void End() {
    if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const Expected* const wrong = status.ok() ? FirstWrong() : nullptr;
    if (wrong != nullptr && !std::exchange(again, true)) return Start();
    if (wrong != nullptr) status = Mismatch(*wrong);
    if (!status.ok()) return done(status);
    if (front_sample) store->Learn(*front_sample);
    done(std::move(result));
  }

  // Returns the error of a file that is not there. It has a code, so that it is not taken for an object that has
  // changed since.
  absl::Status Mismatch(const Expected& file) const {
    absl::Status mismatch = absl::FailedPreconditionError(fmt::format(
        "{}: the file of the sample '{}' that another program has noted at offset {}, with the field '{}' of {} bytes, "
        "is not there; have the shards read: {}",
        store->Uri(key), file.key, file.gap.end(), file.field, file.size, store->command_));
    SetS3Code(&mismatch, "IndexMismatch");
    return mismatch;
  }

  TarHeaderStore* store = nullptr;
  std::string key;
  MutableByteSpan into;
  GetOptions options;
  GetCallback done;
  std::vector<Expected> inside;          // their gaps lie within the range
  std::optional<Expected> front;         // its gap begins before the range
  std::optional<uint64_t> front_sample;  // if it is the first file of one
  Buffer headers_before = Buffer(0);
  std::atomic<int> left{0};
  bool again = false;
  GetResult result;

  std::mutex mutex;  // guards status until `left` is 0
  absl::Status status;
};

bool TarHeaderStore::IsFor(const Index& index) {
  return index.kind() == DataKind::kTar && index.samples_without_crc() > 0;
}

TarHeaderStore::TarHeaderStore(ObjectStore& below, const DatasetPlace& data, const Index& index)
    : StoreAround(below),
      prefix_(data.Key("")),
      command_(fmt::format("millrace index --full {}", data.UriInShell())),
      index_(index),
      known_((index.size() + kBits - 1) / kBits) {
  // A cache may hold bytes that were not compared with this index.
  traits_.identity += fmt::format("#{:016x}", index.fingerprint());
}

bool TarHeaderStore::IsKnown(uint64_t sample) const {
  return (known_[sample / kBits].load(std::memory_order_relaxed) >> (sample % kBits) & 1) != 0;
}

void TarHeaderStore::Learn(uint64_t sample) {
  known_[sample / kBits].fetch_or(uint64_t{1} << (sample % kBits), std::memory_order_relaxed);
}

// Returns the first sample that lies in that object and does not end before the offset, or lies in a later object.
absl::StatusOr<uint64_t> TarHeaderStore::FirstSample(uint32_t object, uint64_t offset) const {
  IndexedSample entry;
  uint64_t first = 0;
  for (uint64_t last = index_.size(); first < last;) {
    const uint64_t middle = first + (last - first) / 2;
    RETURN_IF_ERROR(index_.Lookup(middle, &entry));
    if (entry.object < object || (entry.object == object && entry.span.end() < offset)) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

// Adds the headers of a sample that must be verified. `*end` is that of the file before.
void TarHeaderStore::AddFiles(uint64_t sample, const IndexedSample& entry, uint64_t* end, Read* read) const {
  const ByteRange range = read->options.range;
  std::vector<IndexedField> fields = entry.fields;  // as they lie
  std::erase_if(fields, [](const IndexedField& field) { return field.is_inline; });
  std::sort(fields.begin(), fields.end(), [](const IndexedField& a, const IndexedField& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
  });
  for (const IndexedField& field : fields) {
    const uint64_t begin = entry.span.offset + field.offset;
    const uint64_t gap = TarPadded(*end);
    *end = begin + field.length;
    // The header of an empty file at the end lies within the range.
    const bool behind = begin > range.end() || (begin == range.end() && field.length > 0);
    if (entry.crc32c || *end < range.offset || behind) continue;
    Read::Expected file{.key = entry.key,
                        .field = std::string(field.name),
                        .size = field.length,
                        .gap = {.offset = begin, .length = 0}};  // which nothing fits
    if (gap < begin && begin - gap <= kMaxTarGapBytes) file.gap = {.offset = gap, .length = begin - gap};
    if (file.gap.offset >= range.offset) {
      read->inside.push_back(std::move(file));
      continue;
    }
    const bool is_first = &field == fields.data();
    const bool is_read = *end > range.offset || begin == range.offset;
    if (!is_read || (is_first && IsKnown(sample))) continue;
    read->front = std::move(file);
    if (is_first) read->front_sample = sample;
  }
}

// Finds the headers that must be verified in that read.
absl::Status TarHeaderStore::Find(const std::string& key, Read* read) const {
  const GetOptions& options = read->options;
  if (!key.starts_with(prefix_) || options.range.length == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<uint32_t> object,
                   index_.FindObject(std::string_view(key).substr(prefix_.size())));
  if (!object) return absl::OkStatus();
  IndexedObject indexed;
  RETURN_IF_ERROR(index_.LookupObject(*object, &indexed));
  if (options.if_match != indexed.etag) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint64_t first, FirstSample(*object, options.range.offset));
  ASSIGN_OR_RETURN(const uint64_t last, FirstSample(*object, options.range.end()));
  uint64_t end = 0;  // of the file before
  const auto add = [&](uint64_t sample, const IndexedSample& entry) {
    if (entry.object != *object) return;
    if (sample < first) {
      end = entry.span.end();
    } else {
      AddFiles(sample, entry, &end, read);
    }
  };
  return index_.Scan(first - std::min<uint64_t>(first, 1), std::min(last + 1, index_.size()), add);
}

void TarHeaderStore::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  auto read = std::make_shared<Read>();
  read->options = std::move(options);
  absl::Status status = Find(key, read.get());
  if (!status.ok()) return done(std::move(status));
  const bool verifies = read->front || !read->inside.empty();
  if (!verifies || into.size() != read->options.range.length)
    return below_.Get(std::move(key), into, std::move(read->options), std::move(done));
  read->store = this;
  read->key = std::move(key);
  read->into = into;
  read->done = std::move(done);
  if (read->front) read->headers_before = Buffer(read->front->gap.length);
  read->Start();
}

}  // namespace millrace
