#include "pack/destination.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/counted.h"
#include "base/crypto.h"
#include "dataset/sample_objects.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/pieces.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxMarkBytes = 1 << 20;
constexpr uint64_t kMaxSkippedBytes = uint64_t{1} << 30;

// Returns NotFound or FailedPrecondition when it is not there any more.
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

absl::Status PackDestination::Scan() {
  there_ = DestinationListing(std::move(there_.names), job_.shards);
  const absl::Status status = ForEachPage(
      *location_.store, location_.Key(""), "",
      [this](const ListPage& page) -> absl::Status {
        for (const ObjectInfo& object : page.objects) there_.Take(object);
        return absl::OkStatus();
      },
      stop_);
  there_.JudgeCompanions();
  return absl::IsNotFound(status) ? absl::OkStatus() : status;  // a folder that is not there yet is empty
}

absl::StatusOr<bool> PackDestination::Look() {
  RETURN_IF_ERROR(ScanWithRecord());
  if (record_) return false;
  // While the mark is the one that was read or written, the job is in progress: nothing need be asked for that.
  const bool as_before =
      there_.mark && own_mark_ && there_.mark->etag == own_mark_->etag && there_.mark->size == own_mark_->size;
  bool in_progress = as_before;
  if (!as_before) {
    ASSIGN_OR_RETURN(in_progress, IsInProgress());
  }
  if (in_progress) {
    RETURN_IF_ERROR(CheckSurplus());
    return true;
  }
  // The run that completes the job writes the record before it removes the mark: both may have come after the listing.
  RETURN_IF_ERROR(ScanWithRecord());
  return false;
}

// A listing is no snapshot. Where it has a record and not the shards of which that tells, another run may have
// completed the job while it was made.
absl::Status PackDestination::ScanWithRecord() {
  RETURN_IF_ERROR(Scan());
  RETURN_IF_ERROR(ReadRecord());
  if (!there_.record || record_) return absl::OkStatus();
  RETURN_IF_ERROR(Scan());
  return ReadRecord();
}

absl::StatusOr<bool> PackDestination::IsInProgress() const {
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> mark, Find(kIncompleteName));
  if (!mark) return false;
  if (own_mark_ && mark->etag == own_mark_->etag && mark->size == own_mark_->size) return true;
  ASSIGN_OR_RETURN(const std::optional<PackJob> begun, ReadMark(*mark));
  if (!begun) return false;
  if (begun->Id() == job_.Id()) return true;
  return absl::FailedPreconditionError(
      fmt::format("{}: while this was packed, another pack was begun there: {}", Uri(), Difference(*begun, job_)));
}

absl::Status PackDestination::ReadRecord() {
  record_.reset();
  difference_.clear();
  if (!there_.record) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadAll(*location_.store, *there_.record, kMaxMarkBytes);
  if (absl::IsFailedPrecondition(text.status()))  // replaced since: by what is there now
    text = ReadAll(*location_.store, location_.Key(kRecordName), kMaxMarkBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return text.status();
  absl::StatusOr<PackRecord> record = PackRecord::FromJson(*text);
  if (!record.ok()) return absl::OkStatus();  // of another version: not this job
  difference_ = Difference(record->job, job_);
  if (difference_.empty() && record->shards != there_.HashShards()) difference_ = "its shards were changed since";
  if (const std::string gone = there_.MissingCompanion(); difference_.empty() && !gone.empty())
    difference_ = fmt::format("its {} is gone", gone);
  if (difference_.empty() && there_.has_index) record_ = *std::move(record);
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
                    .shards = there_.HashShards(),
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
  if (record_ || !there_.mark) return absl::OkStatus();
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
  return absl::DataLossError(fmt::format("{}: does not name what was left out any more ({}); --force packs again",
                                         location_.store->Uri(key), Counted(record_->skipped, "sample")));
}

// Returns the job in the mark; nullopt if the mark has gone.
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
      fmt::format("{}: {}; --force starts again", location_.store->Uri(key), ToStd(job.status().message())));
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
                  "continue it, or --force to start again",
                  Uri(), difference));
}

// The mark goes first: whatever is left when this is ended is no data set, and the job is continued from there.
absl::Status PackDestination::StartAnew() {
  RETURN_IF_ERROR(Mark(/*only_if_absent=*/false));
  RETURN_IF_ERROR(RemoveAll({location_.Key(kRecordName), location_.Key(kIndexName), location_.Key(kSkippedName)}));
  std::vector<std::string> keys;
  for (const auto& [number, shard] : there_.shards) keys.push_back(shard.key);
  for (const std::string& name : there_.surplus) keys.push_back(location_.Key(name));
  for (const std::string& name : there_.companions) keys.push_back(location_.Key(name));
  for (const auto& [name, size] : there_.fragments) keys.push_back(location_.Key(name));
  RETURN_IF_ERROR(RemoveAll(std::move(keys)));
  there_.shards.clear();
  there_.surplus.clear();
  there_.fragments.clear();
  return RemoveTemporary();
}

absl::Status PackDestination::Refuse() const {
  return absl::AlreadyExistsError(
      fmt::format("{}: a data set is there already{}{}; --force replaces its shards, or choose another place", Uri(),
                  difference_.empty() ? "" : " and is another: ", difference_));
}

absl::Status PackDestination::CheckForeign() const {
  if (there_.foreign.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      fmt::format("{}: the destination is not empty; remove what is there, or choose another",
                  location_.store->Uri(there_.foreign)));
}

absl::Status PackDestination::CheckSurplus() const {
  if (there_.surplus.empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(
      fmt::format("{}: is no shard of the pack that was begun there; remove it, or start again with --force",
                  location_.store->Uri(location_.Key(there_.surplus.front()))));
}

// One of shards that are not there any more would say that the job is done.
absl::Status PackDestination::RemoveStaleRecord() {
  if (!there_.record || record_) return absl::OkStatus();
  RETURN_IF_ERROR(ScanWithRecord());
  if (!there_.record || record_) return absl::OkStatus();
  there_.record.reset();
  return RemoveAll({location_.Key(kRecordName), location_.Key(kSkippedName)});
}

// Looks at the destination without changing it. Returns the job that was begun there if `job_` may continue it.
absl::StatusOr<std::optional<PackJob>> PackDestination::Judge() {
  RETURN_IF_ERROR(Scan());
  std::optional<PackJob> begun;
  if (there_.mark) {
    ASSIGN_OR_RETURN(begun, ReadMark(*there_.mark));
    if (begun && begun->Id() == job_.Id()) own_mark_ = there_.mark;
    if (!begun) RETURN_IF_ERROR(Scan());  // it went meanwhile: another run has completed the job
  }
  RETURN_IF_ERROR(ReadRecord());
  if (!begun && record_) return begun;
  RETURN_IF_ERROR(CheckForeign());
  if (begun) {
    RETURN_IF_ERROR(Continue(*begun));
    RETURN_IF_ERROR(CheckSurplus());
    return begun;
  }
  if (there_.shards.empty() && there_.surplus.empty() && there_.fragments.empty() && !there_.has_index) return begun;
  return Refuse();
}

absl::Status PackDestination::Check(const PackJob& job) {
  job_ = job;
  there_.names.job = job.Id();
  return Judge().status();
}

absl::Status PackDestination::Begin(const PackJob& job, bool force) {
  job_ = job;
  there_.names.job = job.Id();
  if (force) {
    RETURN_IF_ERROR(Scan());
    RETURN_IF_ERROR(CheckForeign());
    return StartAnew();
  }
  ASSIGN_OR_RETURN(std::optional<PackJob> begun, Judge());
  if (!begun && record_) return absl::OkStatus();
  if (begun) {
    RETURN_IF_ERROR(RemoveStaleRecord());
    return RemoveTemporary();
  }
  absl::Status marked = Mark(/*only_if_absent=*/true);
  if (marked.ok()) return RemoveStaleRecord();
  if (!absl::IsAlreadyExists(marked)) return marked;
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> mark, Find(kIncompleteName));  // another run was quicker
  if (mark) {
    ASSIGN_OR_RETURN(begun, ReadMark(*mark));
  }
  return begun ? Continue(*begun) : marked;
}

absl::StatusOr<std::optional<ObjectInfo>> PackDestination::Find(std::string_view name) const {
  absl::StatusOr<ObjectInfo> info = HeadBlocking(*location_.store, location_.Key(name), stop_);
  if (absl::IsNotFound(info.status())) return std::nullopt;
  if (!info.ok()) return info.status();
  return *std::move(info);
}

// The run that completes the job writes the record before it removes fragments. A shard may have no fragment while the
// record does not exist. Then it belongs to a run that was killed, or that is about to write the fragment.
absl::StatusOr<PackDestination::Claim> PackDestination::ClaimShard(uint64_t shard) const {
  ASSIGN_OR_RETURN(const bool in_progress, IsInProgress());
  if (!in_progress) return Claim{};
  if (!there_.shards.contains(shard))
    return Claim{.granted = true, .stale_etag = {}};  // what came since, a commit meets
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> found, Find(there_.names.Shard(shard)));
  if (!found) return Claim{.granted = true, .stale_etag = {}};
  ASSIGN_OR_RETURN(const auto fragment, Find(there_.names.Fragment(shard, found->size, found->etag)));
  ASSIGN_OR_RETURN(const auto record, Find(kRecordName));
  bool whole = fragment.has_value();
  if (const std::string companion = there_.names.Companion(shard); whole && !companion.empty()) {
    ASSIGN_OR_RETURN(const auto beside, Find(companion));
    whole = beside.has_value();
  }
  if (whole || record) return Claim{};
  return Claim{.granted = true, .stale_etag = found->etag};
}

absl::Status PackDestination::RemoveStale(uint64_t shard, const std::string& stale_etag) const {
  ASSIGN_OR_RETURN(const Claim claim, ClaimShard(shard));
  if (!claim.granted || claim.stale_etag != stale_etag) return absl::OkStatus();  // the commit will meet what is there
  return RemoveAll({location_.Key(there_.names.Shard(shard))});
}

absl::StatusOr<ObjectInfo> PackDestination::Adopt(uint64_t shard, uint64_t bytes, Uint128 digest) const {
  ObjectStore& store = *location_.store;
  const std::string key = location_.Key(there_.names.Shard(shard));
  ASSIGN_OR_RETURN(const std::optional<ObjectInfo> found, Find(there_.names.Shard(shard)));
  if (found && found->size == bytes) {
    const absl::StatusOr<Uint128> hash = HashObject(store, key, *found, stop_);
    if (hash.ok() && *hash == digest) return *found;
    if (!hash.ok() && !absl::IsFailedPrecondition(hash.status()) && !absl::IsNotFound(hash.status()))
      return hash.status();
  }
  return absl::AlreadyExistsError(
      fmt::format("{}: something else writes there too; see to it that nothing does, and run the same command again",
                  store.Uri(key)));
}

absl::Status PackDestination::RemoveAll(std::vector<std::string> keys) const {
  constexpr size_t kAtOnce = 1000;
  for (size_t at = 0; at < keys.size(); at += kAtOnce) {
    const auto first = keys.begin() + static_cast<ptrdiff_t>(at);
    const auto count = static_cast<ptrdiff_t>(std::min(kAtOnce, keys.size() - at));
    Completion<std::vector<absl::Status>> completion;
    location_.store->Delete({first, first + count}, completion.Callback());
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
  for (const auto& [name, size] : there_.fragments) keys.push_back(location_.Key(name));
  RETURN_IF_ERROR(RemoveAll(std::move(keys)));
  RETURN_IF_ERROR(RemoveTemporary());
  // The mark goes last: until then a kill leaves a job that the same command finishes.
  return RemoveAll({location_.Key(kIncompleteName)});
}

}  // namespace millrace
