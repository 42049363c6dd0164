#include "pack/destination.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counted.h"
#include "base/crypto.h"
#include "dataset/sample_objects.h"
#include "shard/data_kind.h"
#include "shard/mds_format.h"
#include "shard/shard_encoder.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/pieces.h"

namespace millrace {

namespace {

constexpr std::string_view kFragmentStart = ".millrace/pack-";
constexpr std::string_view kRecordName = ".millrace/packed";
constexpr std::string_view kSkippedName = ".millrace/skipped";
constexpr std::string_view kShardStart = "shard-";
constexpr size_t kDigits = 6;
constexpr uint64_t kMaxMarkBytes = 1 << 20;
constexpr uint64_t kMaxSkippedBytes = uint64_t{1} << 30;

// The number of a name such as shard-000012.tar, whatever its ending.
std::optional<uint64_t> NumberIn(std::string_view name) {
  if (!name.starts_with(kShardStart) || name.find('/') != std::string_view::npos) return std::nullopt;
  name.remove_prefix(kShardStart.size());
  if (name.size() <= kDigits || name.find('.') != kDigits || name.rfind('.') != kDigits) return std::nullopt;
  uint64_t number = 0;
  for (const char c : name.substr(0, kDigits)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  return number;
}

// Of a shard of any format; none for what only begins like one.
std::optional<uint64_t> ShardNumber(std::string_view name) {
  return ShardKind(name) ? NumberIn(name) : std::nullopt;
}

bool IsShardCompanion(std::string_view name) {
  return name.ends_with(kCompanionSuffix) && NumberIn(name).has_value();
}

// NotFound or FailedPrecondition when it is not there any more.
absl::StatusOr<Uint128> HashObject(ObjectStore& store, const std::string& key, const ObjectInfo& object,
                                   const std::stop_token& stop) {
  Xxh3Stream hash;
  std::string piece;
  GetOptions options;
  options.if_match = object.etag;
  options.stop = stop;
  for (uint64_t at = 0; at < object.size; at += piece.size()) {
    piece.resize(std::min(kPieceBytes, object.size - at));
    options.range = {.offset = at, .length = piece.size()};
    RETURN_IF_ERROR(GetBlocking(store, key, AsWritableBytes(piece), options).status());
    hash.Update(AsBytes(piece));
  }
  return hash.Digest();
}

}  // namespace

std::string PackDestination::ShardName(uint64_t shard) const {
  return fmt::format("{}{:06}{}", kShardStart, shard, ShardSuffix(format_));
}

std::string PackDestination::CompanionName(uint64_t shard) const {
  if (format_ != DataKind::kRecordIo) return "";
  return fmt::format("{}{:06}{}", kShardStart, shard, kCompanionSuffix);
}

std::string PackDestination::CompanionKey(uint64_t shard) const {
  return location_.Key(CompanionName(shard));
}

// What other readers need beside the shards; "" when all is there.
std::string PackDestination::MissingCompanion() const {
  if (format_ == DataKind::kMds)
    return companions_.contains(std::string(kMdsIndexName)) ? "" : std::string(kMdsIndexName);
  for (const auto& [number, shard] : shards_) {
    std::string name = CompanionName(number);
    if (!name.empty() && !companions_.contains(name)) return name;
  }
  return "";
}

std::string PackDestination::FragmentName(uint64_t shard, uint64_t bytes, std::string_view etag) const {
  return fmt::format("{}{:06}-{:016x}", kFragmentStart, shard,
                     Xxh3(AsBytes(fmt::format("{:016x} {} {}", job_.Id(), bytes, etag))));
}

std::string PackDestination::FragmentKey(uint64_t shard, uint64_t bytes, std::string_view etag) const {
  return location_.Key(FragmentName(shard, bytes, etag));
}

void PackDestination::Take(const ObjectInfo& object) {
  const std::string prefix = location_.Key("");
  const std::string name = object.key.substr(prefix.size());
  if (name.empty() || name.ends_with('/')) return;  // folder markers
  if (name == kIncompleteName) {
    mark_ = object;
  } else if (name == kIndexName) {
    has_index_ = true;
  } else if (name == kRecordName) {
    record_object_ = object;
  } else if (name.starts_with(kFragmentStart)) {
    fragments_.emplace(name, object.size);
  } else if (name.starts_with(kDatasetFolder)) {
    return;
  } else if (name == kMdsIndexName || IsShardCompanion(name)) {
    companions_.insert(name);
  } else if (const std::optional<uint64_t> number = ShardNumber(name); !number) {
    if (foreign_.empty()) foreign_ = object.key;
  } else if (*number < job_.shards && name == ShardName(*number)) {
    shards_.emplace(*number, object);
  } else {
    surplus_.push_back(name);
  }
}

// Only beside shards of their format they are what they look like.
void PackDestination::JudgeCompanions() {
  const auto has_shards = [this](DataKind kind) {
    if (kind == format_ && (mark_ || !shards_.empty())) return true;
    return std::any_of(surplus_.begin(), surplus_.end(),
                       [kind](const std::string& name) { return ShardKind(name) == kind; });
  };
  for (const std::string& name : companions_) {
    if (!has_shards(name == kMdsIndexName ? DataKind::kMds : DataKind::kRecordIo) && foreign_.empty())
      foreign_ = location_.Key(name);
  }
}

absl::Status PackDestination::Scan() {
  shards_.clear();
  surplus_.clear();
  companions_.clear();
  fragments_.clear();
  foreign_.clear();
  has_index_ = false;
  mark_.reset();
  record_object_.reset();
  const absl::Status status = ForEachPage(
      *location_.store, location_.Key(""), "",
      [this](const ListPage& page) -> absl::Status {
        for (const ObjectInfo& object : page.objects) Take(object);
        return absl::OkStatus();
      },
      stop_);
  JudgeCompanions();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;  // a folder that is not there yet is empty
}

absl::StatusOr<bool> PackDestination::Look() {
  RETURN_IF_ERROR(ScanWithRecord());
  if (record_) return false;
  // While the mark is the one that was read or written, the job is under way: nothing need be asked for that.
  const bool as_before = mark_ && own_mark_ && mark_->etag == own_mark_->etag && mark_->size == own_mark_->size;
  bool under_way = as_before;
  if (!as_before) {
    ASSIGN_OR_RETURN(under_way, IsUnderWay());
  }
  if (under_way) {
    RETURN_IF_ERROR(CheckSurplus());
    return true;
  }
  // Whoever completes the job writes the record before he removes the mark: both may have come after the listing.
  RETURN_IF_ERROR(ScanWithRecord());
  return false;
}

// A listing is no snapshot. Where it has a record and not the shards of which that tells, another run may have
// completed the job while it was made.
absl::Status PackDestination::ScanWithRecord() {
  RETURN_IF_ERROR(Scan());
  RETURN_IF_ERROR(ReadRecord());
  if (!record_object_ || record_) return absl::OkStatus();
  RETURN_IF_ERROR(Scan());
  return ReadRecord();
}

absl::StatusOr<bool> PackDestination::IsUnderWay() const {
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> mark, Find(kIncompleteName));
  if (!mark) return false;
  if (own_mark_ && mark->etag == own_mark_->etag && mark->size == own_mark_->size) return true;
  ASSIGN_OR_RETURN(const std::optional<PackJob> begun, ReadMark(*mark));
  if (!begun) return false;
  if (begun->Id() == job_.Id()) return true;
  return absl::FailedPreconditionError(
      fmt::format("{}: while this was packed, another pack was begun there: {}", Uri(), Difference(*begun, job_)));
}

std::string PackDestination::HashShards() const {
  Xxh3Stream hash;
  for (const auto& [number, shard] : shards_) {
    hash.UpdateLe64(number);
    hash.UpdateLe64(shard.size);
    hash.UpdateLe64(shard.etag.size());
    hash.Update(AsBytes(shard.etag));
  }
  return hash.Digest().Hex();
}

absl::Status PackDestination::ReadRecord() {
  record_.reset();
  difference_.clear();
  if (!record_object_) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadAll(*location_.store, *record_object_, kMaxMarkBytes);
  if (absl::IsFailedPrecondition(text.status()))  // replaced since: by what is there now
    text = ReadAll(*location_.store, location_.Key(kRecordName), kMaxMarkBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return text.status();
  absl::StatusOr<PackRecord> record = PackRecord::FromJson(*text);
  if (!record.ok()) return absl::OkStatus();  // of another version: not this job
  difference_ = Difference(record->job, job_);
  if (difference_.empty() && record->shards != HashShards()) difference_ = "its shards were changed since";
  if (const std::string gone = MissingCompanion(); difference_.empty() && !gone.empty())
    difference_ = fmt::format("its {} is gone", gone);
  if (difference_.empty() && has_index_) record_ = *std::move(record);
  return absl::OkStatus();
}

absl::Status PackDestination::Record(const Done& done) {
  PutOptions put;
  put.content_type = "application/json";
  put.stop = stop_;
  const std::string lines = IncompleteToJsonLines(done.incomplete_objects) + SkippedToJsonLines(done.skipped);
  if (!lines.empty()) {
    RETURN_IF_ERROR(PutBlocking(*location_.store, location_.Key(kSkippedName), AsBytes(lines), put).status());
  }
  PackRecord record{.job = job_,
                    .shards = HashShards(),
                    .samples = done.samples,
                    .skipped = done.skipped.size(),
                    .index_bytes = done.index_bytes};
  put.only_if_absent = true;  // other runs read it as soon as it is there: it is not replaced
  const std::string text = record.ToJson();
  const auto written = PutBlocking(*location_.store, location_.Key(kRecordName), AsBytes(text), put);
  if (written.ok()) record_ = std::move(record);
  if (!absl::IsAlreadyExists(written.status())) return written.status();
  // Another run was quicker, and must have written the same.
  RETURN_IF_ERROR(Scan());
  RETURN_IF_ERROR(ReadRecord());
  if (record_ || !mark_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{}: says that something else was packed there ({}); see what writes there",
                  location_.store->Uri(location_.Key(kRecordName)), difference_));
}

absl::StatusOr<std::vector<SkippedSample>> PackDestination::ReadSkipped() const {
  if (!record_ || record_->skipped == 0) return std::vector<SkippedSample>();
  const std::string key = location_.Key(kSkippedName);
  absl::StatusOr<std::string> lines = ReadAll(*location_.store, key, kMaxSkippedBytes);
  if (absl::IsFailedPrecondition(lines.status()))  // another run that completes the job has just put the same
    lines = ReadAll(*location_.store, key, kMaxSkippedBytes);
  if (!lines.ok() && !absl::IsNotFound(lines.status())) return lines.status();
  absl::StatusOr<std::vector<SkippedSample>> skipped = SkippedFromJsonLines(lines.value_or(""));
  if (skipped.ok() && skipped->size() == record_->skipped) return skipped;
  return absl::DataLossError(fmt::format("{}: does not name what was left out any more ({}); --force packs anew",
                                         location_.store->Uri(key), Counted(record_->skipped, "sample")));
}

// Which job it tells of; nullopt when it has gone.
absl::StatusOr<std::optional<PackJob>> PackDestination::ReadMark(const ObjectInfo& mark) const {
  const std::string key = location_.Key(kIncompleteName);
  absl::StatusOr<std::string> text = ReadAll(*location_.store, mark, kMaxMarkBytes);
  if (absl::IsFailedPrecondition(text.status()))
    text = ReadAll(*location_.store, key, kMaxMarkBytes);  // replaced since
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  absl::StatusOr<PackJob> job = PackJob::FromJson(*text);
  if (job.ok()) return *std::move(job);
  return absl::FailedPreconditionError(
      fmt::format("{}: {}; --force starts anew", location_.store->Uri(key), ToStd(job.status().message())));
}

absl::Status PackDestination::Mark(bool only_if_absent) {
  PutOptions put;
  put.only_if_absent = only_if_absent;
  put.content_type = "application/json";
  put.stop = stop_;
  const std::string text = job_.ToJson();
  ASSIGN_OR_RETURN(own_mark_, PutBlocking(*location_.store, location_.Key(kIncompleteName), AsBytes(text), put));
  return absl::OkStatus();
}

absl::Status PackDestination::Continue(const PackJob& begun) {
  const std::string difference = Difference(begun, job_);
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{}: another pack was begun there and is not complete: {}; give the same source and options to "
                  "continue it, or --force to start anew",
                  Uri(), difference));
}

// The mark goes first: whatever is left when this is ended is no data set, and the job is continued from there.
absl::Status PackDestination::StartAnew() {
  RETURN_IF_ERROR(Mark(/*only_if_absent=*/false));
  RETURN_IF_ERROR(RemoveAll({location_.Key(kRecordName), location_.Key(kIndexName), location_.Key(kSkippedName)}));
  std::vector<std::string> keys;
  for (const auto& [number, shard] : shards_) keys.push_back(shard.key);
  for (const std::string& name : surplus_) keys.push_back(location_.Key(name));
  for (const std::string& name : companions_) keys.push_back(location_.Key(name));
  for (const auto& [name, size] : fragments_) keys.push_back(location_.Key(name));
  RETURN_IF_ERROR(RemoveAll(std::move(keys)));
  shards_.clear();
  surplus_.clear();
  fragments_.clear();
  return RemoveTemporary();
}

absl::Status PackDestination::Refuse() const {
  return absl::AlreadyExistsError(
      fmt::format("{}: a data set is there already{}{}; --force replaces its shards, or choose another place", Uri(),
                  difference_.empty() ? "" : " and is another: ", difference_));
}

absl::Status PackDestination::CheckForeign() const {
  if (foreign_.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(fmt::format(
      "{}: the destination is not empty; remove what is there, or choose another", location_.store->Uri(foreign_)));
}

absl::Status PackDestination::CheckSurplus() const {
  if (surplus_.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      fmt::format("{}: is no shard of the pack that was begun there; remove it, or start anew with --force",
                  location_.store->Uri(location_.Key(surplus_.front()))));
}

// One of shards that are not there any more would say that the job is done.
absl::Status PackDestination::RemoveStaleRecord() {
  if (!record_object_ || record_) return absl::OkStatus();
  RETURN_IF_ERROR(ScanWithRecord());
  if (!record_object_ || record_) return absl::OkStatus();
  record_object_.reset();
  return RemoveAll({location_.Key(kRecordName), location_.Key(kSkippedName)});
}

absl::Status PackDestination::Begin(const PackJob& job, bool force) {
  job_ = job;
  RETURN_IF_ERROR(Scan());
  if (force) {
    RETURN_IF_ERROR(CheckForeign());
    return StartAnew();
  }
  std::optional<PackJob> begun;
  if (mark_) {
    ASSIGN_OR_RETURN(begun, ReadMark(*mark_));
    if (begun && begun->Id() == job_.Id()) own_mark_ = mark_;
    if (!begun) RETURN_IF_ERROR(Scan());  // it went meanwhile: another run has completed the job
  }
  RETURN_IF_ERROR(ReadRecord());
  if (!begun && record_) return absl::OkStatus();
  RETURN_IF_ERROR(CheckForeign());
  if (!begun) {
    if (!shards_.empty() || !surplus_.empty() || !fragments_.empty() || has_index_) return Refuse();
    absl::Status marked = Mark(/*only_if_absent=*/true);
    if (marked.ok()) return RemoveStaleRecord();
    if (!absl::IsAlreadyExists(marked)) return marked;
    ASSIGN_OR_RETURN(const std::optional<ObjectInfo> mark, Find(kIncompleteName));  // another run was quicker
    if (mark) {
      ASSIGN_OR_RETURN(begun, ReadMark(*mark));
    }
    return begun ? Continue(*begun) : marked;
  }
  RETURN_IF_ERROR(Continue(*begun));
  RETURN_IF_ERROR(CheckSurplus());
  RETURN_IF_ERROR(RemoveStaleRecord());
  return RemoveTemporary();
}

absl::StatusOr<std::optional<ObjectInfo>> PackDestination::Find(std::string_view name) const {
  absl::StatusOr<ObjectInfo> info = HeadBlocking(*location_.store, location_.Key(name), stop_);
  if (absl::IsNotFound(info.status())) return std::nullopt;
  if (!info.ok()) return info.status();
  return *std::move(info);
}

// Whoever completes the job writes the record before he removes fragments: a shard that has none while there is no
// record belongs to a run that was killed, or that is about to write it.
absl::StatusOr<PackDestination::Claim> PackDestination::ClaimShard(uint64_t shard) const {
  ASSIGN_OR_RETURN(const bool under_way, IsUnderWay());
  if (!under_way) return Claim{};
  if (!shards_.contains(shard)) return Claim{.granted = true, .stale_etag = {}};  // what came since, a commit meets
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> there, Find(ShardName(shard)));
  if (!there) return Claim{.granted = true, .stale_etag = {}};
  ASSIGN_OR_RETURN(const auto fragment, Find(FragmentName(shard, there->size, there->etag)));
  ASSIGN_OR_RETURN(const auto record, Find(kRecordName));
  bool whole = fragment.has_value();
  if (const std::string companion = CompanionName(shard); whole && !companion.empty()) {
    ASSIGN_OR_RETURN(const auto beside, Find(companion));
    whole = beside.has_value();
  }
  if (whole || record) return Claim{};
  return Claim{.granted = true, .stale_etag = there->etag};
}

absl::Status PackDestination::RemoveStale(uint64_t shard, const std::string& stale_etag) const {
  ASSIGN_OR_RETURN(const Claim claim, ClaimShard(shard));
  if (!claim.granted || claim.stale_etag != stale_etag) return absl::OkStatus();  // the commit will meet what is there
  return RemoveAll({location_.Key(ShardName(shard))});
}

absl::StatusOr<ObjectInfo> PackDestination::Adopt(uint64_t shard, uint64_t bytes, Uint128 digest) const {
  ObjectStore& store = *location_.store;
  const std::string key = location_.Key(ShardName(shard));
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> there, Find(ShardName(shard)));
  if (there && there->size == bytes) {
    const absl::StatusOr<Uint128> found = HashObject(store, key, *there, stop_);
    if (found.ok() && *found == digest) return *there;
    if (!found.ok() && !absl::IsFailedPrecondition(found.status()) && !absl::IsNotFound(found.status()))
      return found.status();
  }
  return absl::AlreadyExistsError(
      fmt::format("{}: something else writes there too; see to it that nothing does, and run the same command again",
                  store.Uri(key)));
}

bool PackDestination::Has(uint64_t shard) const {
  const auto found = shards_.find(shard);
  if (const std::string companion = CompanionName(shard); !companion.empty() && !companions_.contains(companion))
    return false;
  return found != shards_.end() && fragments_.contains(FragmentName(shard, found->second.size, found->second.etag));
}

uint64_t PackDestination::Missing() const {
  uint64_t missing = 0;
  for (uint64_t shard = 0; shard < job_.shards; ++shard) missing += Has(shard) ? 0 : 1;
  return missing;
}

uint64_t PackDestination::ShardBytes() const {
  uint64_t bytes = 0;
  for (const auto& [number, shard] : shards_) bytes += shard.size;
  return bytes;
}

std::vector<ObjectInfo> PackDestination::Fragments(uint64_t part, uint64_t parts) const {
  std::vector<ObjectInfo> found;
  for (const auto& [number, shard] : shards_) {
    if (number % parts != part) continue;
    const std::string name = FragmentName(number, shard.size, shard.etag);
    const auto fragment = fragments_.find(name);
    if (fragment == fragments_.end()) continue;
    ObjectInfo& info = found.emplace_back();
    info.key = location_.Key(name);
    info.size = fragment->second;
  }
  return found;
}

absl::Status PackDestination::RemoveAll(std::vector<std::string> keys) const {
  constexpr size_t kAtOnce = 1000;
  for (size_t at = 0; at < keys.size(); at += kAtOnce) {
    const auto first = keys.begin() + static_cast<ptrdiff_t>(at);
    const auto count = static_cast<ptrdiff_t>(std::min(kAtOnce, keys.size() - at));
    Completion<std::vector<absl::Status>> completion;
    location_.store->DeleteMany({first, first + count}, completion.Callback());
    for (const absl::Status& status : completion.Wait()) RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status PackDestination::RemoveTemporary() {
  for (const std::string_view folder : {std::string_view(), kDatasetFolder})
    RETURN_IF_ERROR(location_.store->RemoveTemporary(location_.Key(folder)));
  return absl::OkStatus();
}

absl::Status PackDestination::CleanUp() {
  std::vector<std::string> keys;
  for (const auto& [name, size] : fragments_) keys.push_back(location_.Key(name));
  RETURN_IF_ERROR(RemoveAll(std::move(keys)));
  RETURN_IF_ERROR(RemoveTemporary());
  // The mark goes last: until then a kill leaves a job that the same command finishes.
  return RemoveAll({location_.Key(kIncompleteName)});
}

}  // namespace millrace
