#include "job/job_channels.h"

#include <fmt/format.h>

#include <optional>
#include <stop_token>
#include <utility>

#include "base/atomic_file.h"
#include "base/counted.h"
#include "base/interrupt.h"
#include "base/size.h"
#include "channel/checkpoint_mirror.h"
#include "channel/file_mode.h"
#include "channel/pipe_feeder.h"
#include "net/runtime.h"
#include "store/bucket_hint.h"
#include "store/stores.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

absl::Status CopyChannel(Stores& stores, const TrainingJob& job, const Channel& channel, JobLineage* lineage,
                         const std::stop_token& stop, const JobTalk& talk) {
  ShowProgress show = talk.progress("channel " + channel.name);
  FileModeOptions options{.progress = [&](const BulkProgress& now) { show(now.copied_bytes, now.total_bytes); },
                          .stop = stop};
  if (lineage != nullptr) {
    options.found = [&](const std::string& uri, const ObjectInfo& object) {
      return lineage->Object(channel, uri, object);
    };
  }
  absl::StatusOr<FileModeReport> report = FillChannel(stores, job, channel, options);
  show = nullptr;
  if (!report.ok()) return HintAtS3(report.status(), {channel.uri});
  talk.say(fmt::format("channel {}: {} in {}, of which {} copied now ({})", channel.name,
                       Counted(report->objects, "object"), job.ChannelFolder(channel), report->copied,
                       FormatSize(report->bytes)));
  return absl::OkStatus();
}

// Adds a channel in Pipe or FastFile mode to those that are served.
absl::Status FindServed(Stores& stores, const TrainingJob& job, const Channel& channel, JobLineage* lineage,
                        const std::stop_token& stop, ServedChannels& served) {
  // The folder of a mount is listed only if need be: it may be large.
  bool listed = channel.mode == ChannelMode::kPipe || channel.type != ChannelType::kS3Prefix || channel.sharded;
  if (!listed) {
    ASSIGN_OR_RETURN(listed, NamesObject(stores, channel.uri, stop));
  }
  std::optional<ChannelItems> items;
  if (listed) {
    absl::StatusOr<ChannelItems> found = FindChannelItems(stores, channel, stop);
    if (!found.ok()) return HintAtS3(found.status(), {channel.uri});
    items = *std::move(found);
  }
  if (channel.mode == ChannelMode::kFastFile && channel.sharded)
    KeepShare(*items, job.RankIn(channel), job.HostsOf(channel).size());
  if (items && lineage != nullptr) RETURN_IF_ERROR(lineage->Objects(channel, *items));
  if (channel.mode == ChannelMode::kPipe) {
    served.pipes.push_back({channel, *std::move(items)});
  } else {
    served.mounts.push_back({channel, std::move(items)});
  }
  return absl::OkStatus();
}

absl::Status BringCheckpoints(Stores& stores, const JobPlaces& places, const std::stop_token& stop,
                              const JobTalk& talk) {
  RETURN_IF_ERROR(MakeFolder(places.checkpoint_folder, places.checkpoint_folder, Durability::kUnsynced));
  ASSIGN_OR_RETURN(Location from, stores.Open(places.checkpoints));
  ASSIGN_OR_RETURN(Location to, stores.Open(places.checkpoint_folder));
  from.prefix = AsFolder(from.prefix);
  to.prefix = AsFolder(to.prefix);
  const absl::StatusOr<BulkReport> brought = RestoreCheckpoints(from, to, stop);
  if (!brought.ok()) return HintAtS3(brought.status(), {places.checkpoints});
  if (brought->objects > 0) {
    talk.say(fmt::format("checkpoints: {} from {} ({})", Counted(brought->objects, "file"), places.checkpoints,
                         FormatSize(brought->bytes)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServedChannels> PrepareJob(const TrainingJob& job, const JobPlaces& places, JobLineage* lineage,
                                          const JobTalk& talk) {
  // A job that was killed may have left a mount or pipes, in whatever mode it had the channel.
  for (const Channel& channel : job.channels) {
    RETURN_IF_ERROR(RemoveDeadMount(job.ChannelFolder(channel)));
    RemoveStalePipes(job.ChannelFolder(channel));
  }
  RETURN_IF_ERROR(MakeJobTree(job));
  ServedChannels served;
  if (job.channels.empty() && places.checkpoints.empty()) return served;
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  if (!places.checkpoints.empty()) RETURN_IF_ERROR(BringCheckpoints(stores, places, interrupt.token(), talk));
  for (const Channel& channel : job.channels) {
    if (channel.mode == ChannelMode::kFile) {
      RETURN_IF_ERROR(CopyChannel(stores, job, channel, lineage, interrupt.token(), talk));
    } else {
      RETURN_IF_ERROR(FindServed(stores, job, channel, lineage, interrupt.token(), served));
    }
    if (lineage != nullptr) RETURN_IF_ERROR(lineage->End(job, channel));
  }
  return served;
}

}  // namespace millrace
