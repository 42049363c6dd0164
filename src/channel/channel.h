#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millrace {

/// States the way in which a program gets the data of a channel. `channel.cc` has the words (`kModes`) and rules
/// (`CheckChannel`); `job/job_channels.cc` (`PrepareJob`) implements each mode.
enum class ChannelMode {
  kFile,      // copied to the folder of the channel before the program starts
  kFastFile,  // the folder is a file system that reads what the program reads
  kPipe,      // FIFOs beside the folder, one an epoch
};
std::string_view ChannelModeName(ChannelMode mode);  // "File", "FastFile", "Pipe"

/// States the kind of thing that the URI of a channel names.
enum class ChannelType {
  kS3Prefix,           // objects, or one object
  kManifest,           // a JSON array: {"prefix": URI}, then the names of objects behind it
  kAugmentedManifest,  // lines of JSON whose members are values, or name objects
};

/// Describes a named input of a job. The program finds its data in `input/data/NAME` of the job's tree.
struct Channel {
  static constexpr uint64_t kMaxEpochs = 64;
  static constexpr size_t kMaxAttributes = 16;
  static constexpr size_t kMaxGroups = 5;

  std::string name;          // 1 to 64 letters, digits, '.', '-' and '_'; not "." and not ".."
  std::string uri;           // of a folder or an object
  std::string content_type;  // passed to the program; "": not
  ChannelMode mode = ChannelMode::kFile;
  ChannelType type = ChannelType::kS3Prefix;
  bool sharded = false;                  // each host gets its part of the items, not all of them
  bool gzip = false;                     // kPipe: objects are decompressed
  bool recordio = false;                 // kPipe: each object or value is a record of RecordIO
  std::optional<uint64_t> shuffle_seed;  // kPipe: each epoch has an order of its own
  std::vector<std::string> attributes;   // kAugmentedManifest: what a line gives, in this order
  std::vector<std::string> groups;       // of instances, whose hosts get the data; empty: all
  uint64_t epochs = 1;                   // kPipe: a program that resumes may begin with any of so many
};

/// Returns OK if the settings go together; InvalidArgument if SageMaker has no such channel.
absl::Status CheckChannel(const Channel& channel);

/// Takes one of the keys below with its value. InvalidArgument for keys and values outside the contract.
absl::Status SetChannelOption(std::string_view key, std::string_view value, Channel& channel);

/// Takes NAME=URI[,KEY=VALUE...] apart and checks it. The keys are those of SageMaker's channels: mode, type,
/// distribution, compression, wrapper, content-type, shuffle-seed, attributes (a+b), groups (a+b); and epochs. A ',' in
/// the URI is part of it unless "KEY=" and no '/' follow.
///
/// InvalidArgument, with what is allowed, for names, keys and values outside the contract, and for a URI that is none;
/// and the errors of CheckChannel.
absl::StatusOr<Channel> ParseChannel(std::string_view text);

}  // namespace millrace
