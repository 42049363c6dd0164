#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace {

/// A named input of a job. The program finds its data in `input/data/NAME` of the job's tree.
struct Channel {
  std::string name;          // 1 to 64 letters, digits, '.', '-' and '_'; not "." and not ".."
  std::string uri;           // of a folder or an object
  std::string content_type;  // told to the program; "": not
};

/// Takes NAME=URI[,KEY=VALUE...] apart. The keys are those of SageMaker's channels: mode, type, distribution,
/// compression, wrapper, content-type. A ',' in the URI is part of it unless "KEY=" and no '/' follow.
///
/// InvalidArgument, with what is allowed, for names, keys and values outside the contract, and for a URI that is none.
/// Unimplemented for values of the contract that Millrace does not serve: all but mode=File, type=S3Prefix and
/// distribution=FullyReplicated, without compression and without wrapper.
absl::StatusOr<Channel> ParseChannel(std::string_view text);

}  // namespace millrace
