#include "job/job_lineage.h"

#include <fmt/format.h>

#include <vector>

#include "base/hex.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<JobLineage>> JobLineage::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<RunJournal> journal, RunJournal::Open(path));
  return std::unique_ptr<JobLineage>(new JobLineage(std::move(journal)));
}

absl::Status JobLineage::Object(const Channel& channel, std::string_view uri, const ObjectInfo& object) {
  std::lock_guard lock(mutex_);
  if (!digest_) digest_ = std::make_unique<Sha256Stream>();
  digest_->Update(AsBytes(fmt::format("{}\t{}\t{}\n", uri, object.etag, object.size)));
  ++objects_;
  bytes_ += object.size;
  return journal_->Write("object", {{"channel", channel.name},
                                    {"uri", std::string(uri)},
                                    {"etag", object.etag},
                                    {"size", static_cast<int64_t>(object.size)}});
}

absl::Status JobLineage::Objects(const Channel& channel, const ChannelItems& items) {
  for (const ChannelPart& part : items.parts) {
    if (part.is_object) RETURN_IF_ERROR(Object(channel, items.root + part.text, part.Object()));
  }
  return absl::OkStatus();
}

absl::Status JobLineage::End(const TrainingJob& job, const Channel& channel) {
  std::lock_guard lock(mutex_);
  std::vector<RunJournal::Field> fields{{"channel", channel.name},
                                        {"uri", channel.uri},
                                        {"mode", std::string(ChannelModeName(channel.mode))},
                                        {"job_host", job.current_host},
                                        {"hosts", job.HostsOf(channel)},
                                        {"sharded", channel.sharded},
                                        {"order", std::string(channel.shuffle_seed ? "global" : "none")}};
  if (channel.shuffle_seed) fields.emplace_back("seed", static_cast<int64_t>(*channel.shuffle_seed));
  if (!channel.attributes.empty()) fields.emplace_back("attributes", channel.attributes);
  if (digest_) {
    fields.emplace_back("objects", static_cast<int64_t>(objects_));
    fields.emplace_back("bytes", static_cast<int64_t>(bytes_));
    fields.emplace_back("digest", HexEncode(digest_->Finish()));
  }
  digest_.reset();
  objects_ = bytes_ = 0;
  return journal_->Write("channel", fields);
}

absl::Status JobLineage::Epoch(const Channel& channel, const FedEpoch& fed) {
  std::lock_guard lock(mutex_);
  return journal_->Write("epoch", {{"channel", channel.name},
                                   {"epoch", static_cast<int64_t>(fed.epoch)},
                                   {"items", static_cast<int64_t>(fed.items)},
                                   {"of", static_cast<int64_t>(fed.of)},
                                   {"bytes", static_cast<int64_t>(fed.bytes)}});
}

absl::Status JobLineage::Code(const std::string& url, const std::string& commit) {
  std::lock_guard lock(mutex_);
  return journal_->Write("code", {{"url", url}, {"commit", commit}});
}

absl::Status JobLineage::Output(const std::string& name, const std::string& uri, const std::string& etag,
                                uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return journal_->Write("output",
                         {{"name", name}, {"uri", uri}, {"etag", etag}, {"size", static_cast<int64_t>(bytes)}});
}

absl::Status JobLineage::OutputFiles(const std::string& name, const std::string& uri, uint64_t files) {
  std::lock_guard lock(mutex_);
  return journal_->Write("output", {{"name", name}, {"uri", uri}, {"files", static_cast<int64_t>(files)}});
}

}  // namespace millrace
