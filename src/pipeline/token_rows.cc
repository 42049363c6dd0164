#include "pipeline/token_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/counted.h"
#include "base/crypto.h"
#include "dataset/sample_objects.h"
#include "plan/row_builder.h"
#include "shard/field_value.h"
#include "shard/token_values.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr double kGroupBytes = 1.5 * 1024 * 1024;  // as an extent of other samples
// This is the minimum of packed rows. Packs of fewer rows have too few samples to choose from, and would waste more;
// very long rows hold many of them.
constexpr uint64_t kLeastPacked = 256;
constexpr double kMaxPackedBytes = 64.0 * 1024 * 1024;
constexpr uint64_t kLeastGroup = 16;
constexpr uint64_t kMaxGroup = 4096;
constexpr uint64_t kScanSamples = 65536;  // between two looks at the stop token

uint64_t GroupRows(const TokenOptions& options, uint64_t length, NumberType type) {
  const double row = static_cast<double>(length) * type.size;
  const auto rows = static_cast<uint64_t>(std::llround(kGroupBytes / row));
  const auto fitting = static_cast<uint64_t>(kMaxPackedBytes / row);
  const uint64_t least =
      options.layout == RowLayout::kPack ? std::clamp(fitting, kLeastGroup, kLeastPacked) : kLeastGroup;
  return std::clamp(rows, least, kMaxGroup);
}

std::vector<RowSpec> SpecsOf(const TokenOptions& options, NumberType type) {
  RowSpec spec{.layout = options.layout, .longer = options.longer};
  if (options.buckets.empty()) {
    spec.length = options.length;
    spec.group = GroupRows(options, spec.length, type);
    return {spec};
  }
  std::vector<RowSpec> specs;
  for (const TokenOptions::Bucket& bucket : options.buckets) {
    spec.above = spec.length;
    spec.length = bucket.length;
    spec.longest = options.longest();
    spec.group = GroupRows(options, spec.length, type);
    specs.push_back(spec);
  }
  return specs;
}

const IndexedField* FieldOf(const IndexedSample& entry, std::string_view name) {
  const auto found =
      std::find_if(entry.fields.begin(), entry.fields.end(), [&](const auto& f) { return f.name == name; });
  return found == entry.fields.end() ? nullptr : &*found;
}

// Returns the type of a field's numbers; `stored` is as in TokenOptions.
absl::StatusOr<NumberType> TypeOfField(const IndexedField& field, const std::string& stored) {
  if (field.is_inline) return absl::FailedPreconditionError("it is a value in the index");
  if (field.encoding == encoding::kBytes && !stored.empty()) return *ParseNumpyName(stored);
  absl::StatusOr<NumberType> type = TokensOfEncoding(field.encoding);
  if (type.ok() && !stored.empty()) {
    return absl::FailedPreconditionError(fmt::format(
        "the data say that its numbers are {}; to say that they are stored as {} is for fields of bytes, leave it out",
        NumpyName(*type), stored));
  }
  return type;
}

absl::StatusOr<NumberType> TypeOf(const Subset& samples, const std::string& field, const std::string& stored,
                                  const IndexedSample& entry) {
  const std::string name = fmt::format("{}, sample '{}'", samples.dataset->uri(), entry.key);
  const IndexedField* const found = FieldOf(entry, field);
  if (found == nullptr) {
    return absl::FailedPreconditionError(fmt::format("{} has no field '{}' to take tokens from; its fields are: {}",
                                                     name, field, fmt::join(samples.index().field_names(), ", ")));
  }
  absl::StatusOr<NumberType> type = TypeOfField(*found, stored);
  if (!type.ok()) return Annotate(type.status(), fmt::format("{}: field '{}' holds no tokens", name, field));
  return type;
}

// Checks the first array, because an array of two axes may have as many bytes as an array of one axis.
absl::Status CheckOneAxis(const Subset& samples, const std::string& field, NumberType type, const IndexedSample& entry,
                          const std::stop_token& stop) {
  const IndexedField& found = *FieldOf(entry, field);
  const std::optional<uint64_t> head = TokenHeadBytes(found.encoding, type, found.length);
  if (head == uint64_t{0}) return absl::OkStatus();
  const Dataset& dataset = *samples.dataset;
  IndexedObject object;
  RETURN_IF_ERROR(samples.index().LookupObject(entry.object, &object));
  std::byte mark{};
  GetOptions get;
  get.range = {.offset = entry.span.offset + found.offset, .length = 1};
  get.if_match = object.etag;
  get.stop = stop;
  RETURN_IF_ERROR(GetBlocking(dataset.store(), dataset.StoreKey(object.key), {&mark, 1}, std::move(get)).status());
  if (head && mark == TokenHeadMark(*head)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{}, sample '{}': field '{}' holds an array, but not one of one axis, as tokens are", dataset.uri(),
                  entry.key, field));
}

// Goes through all tokens of a subset, sample by sample.
class TokenScan {
 public:
  TokenScan(const Subset& samples, const TokenOptions& options, NumberType type, const LongTask& task)
      : samples_(samples), field_(options.field), stored_(options.stored), type_(type), task_(task) {}

  absl::Status Run(RowBuilder& builder) {
    const uint64_t universe = samples_.index().size();
    rank_ = 0;
    Advance();
    for (uint64_t first = 0; first < universe; first += kScanSamples) {
      if (task_.stop.stop_requested()) return absl::CancelledError("making rows of tokens was stopped");
      const uint64_t last = std::min(universe, first + kScanSamples);
      if (next_ < last) {
        RETURN_IF_ERROR(samples_.index().Scan(first, last, [&](uint64_t sample, const IndexedSample& entry) {
          if (sample == next_ && status_.ok()) status_ = Add(entry, builder);
        }));
        RETURN_IF_ERROR(status_);
      }
      if (task_.progress) task_.progress(last, universe);
    }
    return builder.Finish();
  }

 private:
  void Advance() { next_ = rank_ < samples_.size() ? samples_.SampleAt(rank_) : UINT64_MAX; }

  absl::Status Add(const IndexedSample& entry, RowBuilder& builder) {
    if (const IndexedField* field = FieldOf(entry, field_); field == nullptr || field->encoding != encoding_) {
      ASSIGN_OR_RETURN(const NumberType type, TypeOf(samples_, field_, stored_, entry));
      if (type != type_) {
        return absl::FailedPreconditionError(fmt::format(
            "{}, sample '{}': its tokens are {}, those of the first sample {}; tokens of one data set must be "
            "of one type",
            samples_.dataset->uri(), entry.key, NumpyName(type), NumpyName(type_)));
      }
      encoding_ = FieldOf(entry, field_)->encoding;
    }
    uint64_t bytes = FieldOf(entry, field_)->length;
    const std::optional<uint64_t> head = TokenHeadBytes(encoding_, type_, bytes);
    bytes -= head.value_or(0);
    if (!head || bytes % type_.size != 0) {
      return absl::DataLossError(fmt::format(
          "{}, sample '{}': field '{}' has {}, which is no whole number of {}; repair the data, or leave the "
          "sample out",
          samples_.dataset->uri(), entry.key, field_, Counted(bytes, "byte"), NumpyName(type_)));
    }
    absl::Status added = builder.Add(rank_, bytes / type_.size);
    ++rank_;
    Advance();
    if (!absl::IsOutOfRange(added)) return added;
    return absl::FailedPreconditionError(
        fmt::format("{}, sample '{}': {}; declare a longer one, or have long documents split or truncated",
                    samples_.dataset->uri(), entry.key, ToStd(added.message())));
  }

  const Subset& samples_;
  const std::string& field_;
  const std::string& stored_;
  const NumberType type_;
  const LongTask& task_;
  uint64_t rank_ = 0;
  uint64_t next_ = 0;     // sample of the index
  std::string encoding_;  // of the samples so far
  absl::Status status_;
};

// Opens a table and compares it with the request. The file's own header is not enough: slots and look-ups have the
// sizes of the request.
absl::StatusOr<RowTable> OpenTable(ByteSpan bytes, const RowSpec& spec, uint64_t key, uint64_t samples) {
  ASSIGN_OR_RETURN(RowTable table, RowTable::Open(bytes, key));
  if (table.length() == spec.length && table.group() == spec.group && table.samples() == samples) return table;
  return absl::DataLossError("its foot is damaged");
}

absl::StatusOr<std::shared_ptr<const TokenRows>> FindTable(Stores& stores, const Subset& samples,
                                                           const TokenOptions& options, const RowSpec& spec,
                                                           NumberType type, const LongTask& task) {
  const uint64_t field_key = HashKey(Xxh3(AsBytes(options.field)), {samples.fingerprint(), type.size});
  const uint64_t key = spec.Key(field_key);
  const auto open = [&](const Artifact& file) { return OpenTable(file.bytes(), spec, key, samples.size()); };
  const auto check = [&](const SharedArtifact& file) { return open(*file).status(); };
  const auto verify = [&](const SharedArtifact& file) -> absl::Status {
    ASSIGN_OR_RETURN(const RowTable table, open(*file));
    return table.Verify();
  };
  const auto build = [&](OpenArtifact create) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> out, create());
    RowTableWriter writer(spec, key, samples.size(), [&out](ByteSpan bytes) { return out->Append(bytes); });
    RowBuilder builder(spec, [&writer](std::span<const Segment> row) { return writer.Add(row); });
    RETURN_IF_ERROR(TokenScan(samples, options, type, task).Run(builder));
    RETURN_IF_ERROR(writer.Finish(builder.counts()));
    return out->Commit().status();
  };
  const Dataset& dataset = *samples.dataset;
  const std::string name = fmt::format("packs-{}-{:016x}", spec.length, key);
  ArtifactPlaces places(stores, {.beside = {.store = &dataset.store(),
                                            .prefix = dataset.StoreKey(fmt::format("{}{}", kDatasetFolder, name))},
                                 .cache_folder = dataset.cache_folder(),
                                 .stem = StemFor(name, dataset.store().traits()),
                                 .one_version = true,
                                 .title = name,
                                 .stop = task.stop});
  ASSIGN_OR_RETURN(SharedArtifact file, places.GetOrBuild(check, verify, build));
  ASSIGN_OR_RETURN(const RowTable table, open(*file));
  return std::make_shared<const TokenRows>(samples, options.field, type, std::move(file), table);
}

}  // namespace

absl::Status TokenOptions::Check() const {
  const std::optional<NumberType> type = ParseNumpyName(stored);
  if (!stored.empty() && (!type || type->kind == NumberType::Kind::kFloat)) {
    return absl::InvalidArgumentError(
        fmt::format("tokens are not stored as '{}'; they are int8 to int64 or uint8 to uint64", stored));
  }
  if (buckets.empty()) return RowSpec{.layout = layout, .length = length, .longer = longer}.Check();
  if (layout != RowLayout::kPad) return absl::InvalidArgumentError("rows of buckets hold one document each");
  if (buckets.size() > kMaxBuckets) {
    return absl::InvalidArgumentError(fmt::format("{} buckets; choose at most {}", buckets.size(), kMaxBuckets));
  }
  uint64_t before = 0;
  for (const Bucket& bucket : buckets) {
    RETURN_IF_ERROR((RowSpec{.layout = layout, .length = bucket.length}).Check());
    if (bucket.length <= before) {
      return absl::InvalidArgumentError(
          fmt::format("the lengths of buckets ascend; {} comes after {}", bucket.length, before));
    }
    before = bucket.length;
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenRows::Place> TokenRows::Find(const Segment& piece, IndexedSample* entry) const {
  Place place;
  place.sample = samples_.SampleAt(piece.sample);
  RETURN_IF_ERROR(samples_.index().Lookup(place.sample, entry));
  const IndexedField* const field = FieldOf(*entry, field_);
  const std::optional<uint64_t> head =
      field == nullptr ? std::nullopt : TokenHeadBytes(field->encoding, type_, field->length);
  if (!head || *head + (piece.offset + piece.length) * type_.size > field->length) {
    return absl::DataLossError(
        fmt::format("{} does not fit to the index (sample '{}'); remove it, and it is made again", uri(), entry->key));
  }
  place.object = entry->object;
  place.bytes = piece.length * type_.size;
  const uint64_t skip = field->offset + *head + piece.offset * type_.size;
  if (entry->span.length <= kWholeSampleBytes || place.bytes == entry->span.length) {
    place.span = entry->span;
    place.crc32c = entry->crc32c;
    place.skip = skip;
  } else {
    place.span = {entry->span.offset + skip, place.bytes};
  }
  return place;
}

absl::StatusOr<RowGroup> TokenRows::ReadGroup(uint64_t number) const {
  absl::StatusOr<RowGroup> group = table_.ReadGroup(number);
  if (group.ok()) return group;
  return absl::DataLossError(
      fmt::format("{}: {}; remove it, and it is made again", uri(), ToStd(group.status().message())));
}

double TokenRows::mean_row_bytes() const {
  const RowCounts& counts = table_.counts();
  const double tokens = counts.rows > 0 ? static_cast<double>(counts.tokens) / static_cast<double>(counts.rows) : 0;
  return tokens * type_.size;
}

absl::StatusOr<std::shared_ptr<const RowGroup>> RowGroups::Get(const TokenRows& rows, size_t part, uint64_t row) {
  const Key key{part, row / rows.table().group()};
  if (const auto found = found_.find(key); found != found_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return found->second->group;
  }
  ASSIGN_OR_RETURN(RowGroup group, rows.ReadGroup(key.second));
  Entry entry{.key = key, .group = std::make_shared<const RowGroup>(std::move(group))};
  entry.bytes =
      entry.group->segments.size() * (sizeof(Segment) + sizeof(RowGroup::Stored) + 4) + entry.group->rows() * 4;
  used_ += entry.bytes;
  entries_.push_front(std::move(entry));
  found_[key] = entries_.begin();
  while (used_ > memory_bytes_ && entries_.size() > 1) {
    used_ -= entries_.back().bytes;
    found_.erase(entries_.back().key);
    entries_.pop_back();
  }
  return entries_.front().group;
}

absl::StatusOr<std::vector<std::shared_ptr<const TokenRows>>> FindRows(Stores& stores, const Subset& samples,
                                                                       const TokenOptions& options,
                                                                       const LongTask& task) {
  RETURN_IF_ERROR(options.Check());
  if (samples.size() == 0) {
    return absl::FailedPreconditionError(
        fmt::format("{}: there are no samples to make rows of", samples.dataset->uri()));
  }
  IndexedSample first;
  RETURN_IF_ERROR(samples.index().Lookup(samples.SampleAt(0), &first));
  ASSIGN_OR_RETURN(const NumberType type, TypeOf(samples, options.field, options.stored, first));
  RETURN_IF_ERROR(CheckOneAxis(samples, options.field, type, first, task.stop));
  std::vector<std::shared_ptr<const TokenRows>> tables;
  for (const RowSpec& spec : SpecsOf(options, type)) {
    ASSIGN_OR_RETURN(tables.emplace_back(), FindTable(stores, samples, options, spec, type, task));
  }
  return tables;
}

}  // namespace millrace
