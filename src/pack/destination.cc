#include "pack/destination.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/crypto.h"
#include "dataset/sample_objects.h"
#include "store/blocking.h"
#include "store/completion.h"

namespace millrace {

namespace {

constexpr std::string_view kFragmentStart = ".millrace/pack-";
constexpr std::string_view kRecordName = ".millrace/packed";
constexpr std::string_view kShardStart = "shard-";
constexpr size_t kDigits = 6;
constexpr uint64_t kMaxMarkBytes = 1 << 20;

// The number of a name such as shard-000012.tar, whatever its format.
std::optional<uint64_t> ShardNumber(std::string_view name) {
  if (!name.starts_with(kShardStart)) return std::nullopt;
  name.remove_prefix(kShardStart.size());
  if (name.size() <= kDigits || name[kDigits] != '.' || name.find('/') != std::string_view::npos) return std::nullopt;
  uint64_t number = 0;
  for (const char c : name.substr(0, kDigits)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint64_t>(c - '0');
  }
  return number;
}

}  // namespace

std::string PackDestination::ShardName(uint64_t shard) const {
  return fmt::format("{}{:06}{}", kShardStart, shard, suffix_);
}

std::string PackDestination::FragmentName(uint64_t shard, uint64_t bytes, std::string_view etag) const {
  return fmt::format("{}{:06}-{:016x}", kFragmentStart, shard,
                     Xxh3(AsBytes(fmt::format("{:016x} {} {}", job_.Id(), bytes, etag))));
}

std::string PackDestination::FragmentKey(uint64_t shard, uint64_t bytes, std::string_view etag) const {
  return location_.Key(FragmentName(shard, bytes, etag));
}

absl::Status PackDestination::Take(const ObjectInfo& object) {
  const std::string prefix = location_.Key("");
  const std::string name = object.key.substr(prefix.size());
  if (name.empty() || name.ends_with('/')) return absl::OkStatus();  // folder markers
  if (name == kIncompleteName) {
    has_mark_ = true;
  } else if (name == kIndexName) {
    has_index_ = true;
  } else if (name == kRecordName) {
    has_record_ = true;
  } else if (name.starts_with(kFragmentStart)) {
    fragments_.emplace(name, object.size);
  } else if (name.starts_with(kDatasetFolder)) {
    return absl::OkStatus();
  } else if (const std::optional<uint64_t> number = ShardNumber(name); !number) {
    if (foreign_.empty()) foreign_ = object.key;
  } else if (*number < job_.shards && name == ShardName(*number)) {
    shards_.emplace(*number, object);
  } else {
    surplus_.push_back(name);
  }
  return absl::OkStatus();
}

absl::Status PackDestination::Scan() {
  shards_.clear();
  surplus_.clear();
  fragments_.clear();
  foreign_.clear();
  has_index_ = has_mark_ = has_record_ = false;
  const absl::Status status = ForEachPage(
      *location_.store, location_.Key(""), "",
      [this](const ListPage& page) -> absl::Status {
        for (const ObjectInfo& object : page.objects) RETURN_IF_ERROR(Take(object));
        return absl::OkStatus();
      },
      stop_);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;  // a folder that is not there yet is empty
}

absl::StatusOr<bool> PackDestination::Look() {
  RETURN_IF_ERROR(Scan());
  RETURN_IF_ERROR(ReadRecord());
  return has_mark_ && !record_;
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
  if (!has_record_) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadAll(*location_.store, location_.Key(kRecordName), kMaxMarkBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return text.status();
  absl::StatusOr<PackRecord> record = PackRecord::FromJson(*text);
  if (!record.ok()) return absl::OkStatus();  // of another version: not this job
  difference_ = Difference(record->job, job_);
  if (difference_.empty() && record->shards != HashShards()) difference_ = "its shards were changed since";
  if (difference_.empty() && has_index_) record_ = *std::move(record);
  return absl::OkStatus();
}

absl::Status PackDestination::Record(uint64_t samples, uint64_t skipped, uint64_t index_bytes) {
  const PackRecord record{
      .job = job_, .shards = HashShards(), .samples = samples, .skipped = skipped, .index_bytes = index_bytes};
  PutOptions put;
  put.only_if_absent = !alone_;  // other parts read it as soon as it is there: it is not replaced
  put.content_type = "application/json";
  put.stop = stop_;
  const std::string text = record.ToJson();
  const auto written = PutBlocking(*location_.store, location_.Key(kRecordName), AsBytes(text), put);
  return absl::IsAlreadyExists(written.status()) ? absl::OkStatus() : written.status();
}

absl::StatusOr<std::optional<PackJob>> PackDestination::ReadMark() {
  const std::string key = location_.Key(kIncompleteName);
  absl::StatusOr<std::string> text = ReadAll(*location_.store, key, kMaxMarkBytes);
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
  return PutBlocking(*location_.store, location_.Key(kIncompleteName), AsBytes(text), put).status();
}

absl::Status PackDestination::Continue(const PackJob& begun) {
  const std::string difference = Difference(begun, job_);
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{}: another pack was begun there and is not complete: {}; give the same source and options to "
                  "continue it, or --force to start anew",
                  Uri(), difference));
}

// Index and record go before the mark comes: with it they would say that the job is done.
absl::Status PackDestination::StartAnew() {
  RETURN_IF_ERROR(RemoveAll({location_.Key(kRecordName), location_.Key(kIndexName)}));
  RETURN_IF_ERROR(Mark(false));
  std::vector<std::string> keys;
  for (const auto& [name, size] : fragments_) keys.push_back(location_.Key(name));
  RETURN_IF_ERROR(RemoveAll(std::move(keys)));
  fragments_.clear();
  return absl::OkStatus();
}

absl::Status PackDestination::Refuse() const {
  return absl::AlreadyExistsError(
      fmt::format("{}: a data set is there already{}{}; --force replaces its shards, or choose another place", Uri(),
                  difference_.empty() ? "" : " and is another: ", difference_));
}

absl::Status PackDestination::Begin(const PackJob& job, bool force, bool alone) {
  job_ = job;
  alone_ = alone;
  RETURN_IF_ERROR(Scan());
  if (!foreign_.empty()) {
    return absl::AlreadyExistsError(fmt::format(
        "{}: the destination is not empty; remove what is there, or choose another", location_.store->Uri(foreign_)));
  }
  if (alone) RETURN_IF_ERROR(RemoveTemporary());
  if (force) return StartAnew();
  ASSIGN_OR_RETURN(std::optional<PackJob> begun, ReadMark());
  if (begun) RETURN_IF_ERROR(Continue(*begun));
  RETURN_IF_ERROR(ReadRecord());
  if (begun || record_) return absl::OkStatus();
  if (!shards_.empty() || !surplus_.empty() || !fragments_.empty() || has_index_) return Refuse();
  absl::Status marked = Mark(!alone);
  if (!absl::IsAlreadyExists(marked)) return marked;
  // Another part was quicker.
  ASSIGN_OR_RETURN(begun, ReadMark());
  return begun ? Continue(*begun) : marked;
}

bool PackDestination::Has(uint64_t shard) const {
  const auto found = shards_.find(shard);
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

std::vector<ObjectInfo> PackDestination::Fragments() const {
  std::vector<ObjectInfo> found;
  for (const auto& [number, shard] : shards_) {
    const std::string name = FragmentName(number, shard.size, shard.etag);
    const auto fragment = fragments_.find(name);
    if (fragment == fragments_.end()) continue;
    ObjectInfo& info = found.emplace_back();
    info.key = location_.Key(name);
    info.size = fragment->second;
  }
  return found;
}

absl::Status PackDestination::RemoveAll(std::vector<std::string> keys) {
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
  for (const std::string& name : surplus_) keys.push_back(location_.Key(name));
  for (const auto& [name, size] : fragments_) keys.push_back(location_.Key(name));
  RETURN_IF_ERROR(RemoveAll(std::move(keys)));
  RETURN_IF_ERROR(RemoveTemporary());
  // The mark goes last: until then a kill leaves a job that the same command finishes.
  return RemoveAll({location_.Key(kIncompleteName)});
}

}  // namespace millrace
