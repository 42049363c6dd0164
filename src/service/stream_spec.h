#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pipeline/loader.h"
#include "pipeline/source.h"
#include "plan/selection.h"
#include "service/row_functions.h"

namespace millrace {

/// The trainer and the worker must have the same version of the protocol.
inline constexpr uint64_t kServiceVersion = 8;

/// A stream is all that a worker needs to know: which data, what is delivered, in which order, and from where on. The
/// worker keeps nothing else, so that any other one can continue the stream.
struct StreamSpec {
  static constexpr uint64_t kMaxBytes = uint64_t{64} << 20;  // of an encoded one

  /// Describes a data set as the trainer sees it, or some of its samples.
  struct Part {
    std::string uri;
    uint64_t fingerprint = 0;            // of its index
    uint64_t samples = 0;                // of its index
    std::optional<LabelsFile> labels;    // the samples' labels
    uint64_t labels_id = 0;              // of what the trainer has read of them
    std::vector<std::string> classes;    // Dataset::classes()
    std::optional<std::string> members;  // of a subset: the numbers of its samples, encoded; absent: all samples
  };

  std::vector<Part> parts;
  std::optional<TokenOptions> tokens;   // rows of tokens; never with buckets
  std::optional<RowFunction> function;  // that is applied to the samples
  bool compress = false;                // batches by zstd, where that makes them clearly smaller
  LoaderOptions options;                // of the stream: its rank, world and batch; `start` is set, `cache` is not
};

/// Returns the spec of the stream that a loader of `source` with these options delivers. Paths become absolute. Returns
/// InvalidArgument if streams cannot deliver it: buckets of tokens.
absl::StatusOr<StreamSpec> SpecOf(const Source& source, const LoaderOptions& options);

/// Returns the members of a part that is a subset. The caller has compared `samples` with the index: memory is taken
/// for so many. Returns InvalidArgument if they are damaged.
absl::StatusOr<Selection> MembersOf(const StreamSpec::Part& part);

std::string EncodeStreamSpec(const StreamSpec& spec);

/// Returns InvalidArgument if the bytes are not an encoded spec. Numbers are checked as far as it takes to represent
/// them; whether the options make sense is for Loader::Create to say.
absl::StatusOr<StreamSpec> ParseStreamSpec(ByteSpan bytes);

}  // namespace millrace
