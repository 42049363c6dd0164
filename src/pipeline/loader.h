#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "decode/image.h"
#include "decode/label.h"
#include "net/runtime.h"
#include "pipeline/source.h"
#include "pipeline/stall_ledger.h"
#include "plan/batching.h"
#include "plan/mix.h"
#include "plan/plan.h"
#include "plan/position.h"
#include "shard/token_values.h"

namespace millrace {

enum class BadSamples : uint8_t {
  kFail,     // the batch that needs it fails, with the sample's name
  kReplace,  // another sample, chosen by (seed, epoch, sample), takes its place; it is listed in quarantine()
};

enum class DigestOf : uint8_t { kNone, kRaw, kDecoded };

/// The field that holds a sample's label, and how it is written there.
struct LabelOptions {
  std::string field = "cls";
  LabelSpec spec;
};

/// How the parts of a source make an epoch.
struct MixOptions {
  uint64_t length = 0;             // samples of an epoch; 0 = as many as the source has
  std::vector<Mix::Stage> stages;  // empty = by the sizes of the parts
  Draws draws = Draws::kExact;
  bool fresh_passes = false;
};

/// The mix that these options make of the source, with a policy for each part. InvalidArgument as Mix::Check.
absl::StatusOr<Mix> MixOf(const Source& source, const std::vector<OrderPolicy>& policies, const MixOptions& options);

struct LoaderOptions {
  // What is delivered.
  ImageSpec image;
  std::string image_field;    // "" = the one field of each sample that is a jpg, jpeg or png
  bool allow_arrays = false;  // data sets of arrays without images are delivered as well: nothing is decoded
  std::optional<LabelOptions>
      label;  // absent = the field `cls` as an integer where the data set has it, else no labels
  BadSamples bad_samples = BadSamples::kFail;
  // Of a source of rows of tokens (Source::OfRows), for which nothing of the above counts but bad_samples: a damaged
  // piece is replaced by padding.
  TokenType token_type = TokenType::kInt64;
  int64_t pad_token = 0;

  // In which order.
  uint64_t batch = 128;  // samples, or rows, of a batch of this rank; buckets say their own
  Shuffle shuffle = Shuffle::kWindow;
  // Of the windowed shuffle; absent = of each part of the source what OrderPolicy::ForSamples says.
  std::optional<uint64_t> extent;
  std::optional<uint64_t> window;
  std::optional<uint64_t> lanes;
  std::optional<MixOptions> mix;  // absent = a source of several parts is mixed by their sizes
  uint64_t seed = 0;
  uint64_t epochs = 1;  // 0 = without end
  uint64_t rank = 0;
  uint64_t world = 1;
  LastBatch last = LastBatch::kPad;
  std::optional<Position> start;  // absent = the beginning

  // With what means. None of these changes what is delivered.
  uint64_t memory_bytes =
      uint64_t{512} << 20;  // of fetched bytes and batches together, also those that the program holds
  DigestOf digest = DigestOf::kNone;
};

/// An array of a batch.
struct ArrayShape {
  std::string name;   // as Python's batches have it: "image", "tokens" ...
  std::string dtype;  // "uint8", "float32", "int32", "int64", "bool"
  std::vector<uint64_t> dims;
  friend bool operator==(const ArrayShape&, const ArrayShape&) = default;
};
using BatchShape = std::vector<ArrayShape>;

/// One batch of this rank. Move-only; its memory returns to the loader when it and all copies of `memory` are gone,
/// also after the loader itself is gone. Rows without a sample are padding: zeros, label -1, pad_token.
struct Batch {
  size_t shape = 0;                 // which of Loader::shapes() it has
  uint64_t size = 0;                // rows: `batch` below
  uint64_t length = 0;              // of a row of tokens; 0: there are none
  std::shared_ptr<void> memory;     // keeps the spans below alive
  MutableByteSpan images;           // [batch, H, W, C] or [batch, C, H, W] of ImageSpec::dtype; empty where none are
  MutableByteSpan tokens;           // [batch, length] of token_type
  std::span<uint8_t> token_mask;    // [batch, length]; 1 = a token, 0 = padding
  std::span<int32_t> position_ids;  // [batch, length]; the token's place in its piece, 0 = padding; empty: not known
  std::span<int32_t> segment_ids;   // [batch, length]; the piece, from 1 on, 0 = padding; empty: not known
  std::span<uint64_t> rows;         // [batch]; the row's number in its table; empty where items are samples
  std::span<int64_t> labels;        // [batch]; empty unless labels are integers
  std::span<uint8_t> mask;          // [batch]; 1 = a sample, 0 = padding
  std::span<uint64_t> samples;      // [batch]; ordinal in the index (of the replacement, where one was made); of a row
                                    // of tokens, of the sample that it begins with, as its key
  std::span<uint64_t> parts;        // [batch]; the part of the source (mix or buckets); empty where there is one
  std::vector<std::string> texts;   // [batch] when labels are text, else empty
  std::vector<std::string> keys;    // [batch]; "" for padding
  uint64_t valid = 0;               // rows that count as samples of the epoch (neither padding nor wrapped repeats)
  uint64_t epoch = 0;
  bool last_of_epoch = false;
  Position position;  // after this batch
};

/// A sample that could not be used and what took its place.
struct QuarantinedSample {
  std::string uri;  // of the object, and the sample's key
  std::string reason;
  std::string replacement;  // key; "" for padding
  uint64_t epoch = 0;
};

/// What the consumer has received so far and what it cost.
struct LoaderReport {
  uint64_t samples = 0;                // valid rows
  uint64_t tokens = 0;                 // of them
  uint64_t token_places = 0;           // of all rows of the batches: what are no tokens are padding
  Uint128 digest;                      // of the valid rows, when asked for
  Position position;                   // after the last batch that was received
  std::vector<uint64_t> part_samples;  // valid rows of each part of the source
  StallReport stalls;
  std::vector<QuarantinedSample> quarantine;  // in order of delivery; the first 1,000
  uint64_t quarantined = 0;
};

/// The pipeline: fetches samples in the order of the plan, ahead of the consumer and within one memory budget, decodes
/// them on the CPU pool straight into batches, and delivers those in order. The bytes of batch n depend on (data,
/// options, n) only.
///
/// Next, WaitReady and report may be called from any one thread at a time. The destructor cancels what is in flight and
/// waits for it (not for batches that the program still holds). Runtime, the Datasets of the
/// source and their Stores must outlive the Loader.
class Loader {
 public:
  /// With less memory no loader works, whatever its batches and samples.
  static constexpr uint64_t kLeastMemoryBytes = uint64_t{2} << 20;

  /// Reserves options.memory_bytes of runtime.memory(). Errors: InvalidArgument (options; position of other data, seed
  /// or policy: FailedPrecondition), ResourceExhausted (a budget that cannot hold two batches: names the one that would
  /// do).
  static absl::StatusOr<std::unique_ptr<Loader>> Create(Runtime& runtime, const Source& source, LoaderOptions options);
  /// What Create would refuse about these options, memory apart.
  static absl::Status Check(const Source& source, LoaderOptions options);
  ~Loader();

  /// The next batch, nullopt after the last one of the last epoch. Blocks. An error is final and returned again, but
  /// for ResourceExhausted: the program holds so many batches that no memory is left for another; it may let go of some
  /// and go on.
  absl::StatusOr<std::optional<Batch>> Next();

  /// Waits until Next() would not block, at most `limit`; true when so. For callers that must look at signals
  /// meanwhile.
  bool WaitReady(std::chrono::nanoseconds limit);

  LoaderReport report() const;

  /// The order in use, with defaults filled in; of a mix, that of its first part.
  const OrderPolicy& policy() const;
  /// Integer, text or no labels: what was settled at creation.
  const std::optional<LabelOptions>& label() const;
  /// Batches of an epoch, for this and every rank.
  uint64_t steps_per_epoch() const;
  /// Samples, or rows, of an epoch, of all ranks.
  uint64_t samples_per_epoch() const;
  /// All shapes that batches have. Every batch has one of them, since its memory is laid out by it.
  std::vector<BatchShape> shapes() const;

 private:
  class Engine;
  explicit Loader(std::unique_ptr<Engine> engine);
  std::unique_ptr<Engine> engine_;
};

}  // namespace millrace
