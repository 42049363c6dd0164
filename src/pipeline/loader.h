#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/range_cache.h"
#include "decode/image.h"
#include "decode/label.h"
#include "net/runtime.h"
#include "pipeline/batch_field.h"
#include "pipeline/batch_source.h"
#include "pipeline/source.h"
#include "plan/batching.h"
#include "plan/mix.h"
#include "plan/plan.h"
#include "shard/token_values.h"

namespace millrace {

class MemoryShares;

enum class BadSamples : uint8_t {
  kFail,     // the batch that needs it fails, with the sample's name
  kReplace,  // another sample, chosen by (seed, epoch, sample), takes its place; it is listed in quarantine()
  kMask,     // its row stays and is padding, and is listed in quarantine(); for rows of tokens the same as kReplace
};

enum class DigestOf : uint8_t { kNone, kRaw, kDecoded };

/// The field that holds a sample's label, and its form there.
struct LabelOptions {
  std::string field = "cls";
  LabelSpec spec;
};

/// Says how the parts of a source make an epoch.
struct MixOptions {
  uint64_t length = 0;             // samples of an epoch; 0 = as many as the source has
  std::vector<Mix::Stage> stages;  // empty = by the sizes of the parts
  Draws draws = Draws::kExact;
  bool fresh_passes = false;
};

/// Returns the mix that these options make of the source, with a policy for each part. InvalidArgument as Mix::Check.
absl::StatusOr<Mix> MixOf(const Source& source, const std::vector<OrderPolicy>& policies, const MixOptions& options);

struct LoaderOptions {
  // These are the contents of batches. Each batch of samples has one array or column of values for each of these
  // entries. If there are none, it has "image" and "label" as the options below say.
  std::vector<BatchField> fields;
  ImageSpec image;
  std::string image_field;    // "" = the one field of each sample that is an image (IsImageField)
  bool allow_arrays = false;  // data sets of arrays without images are delivered as well: nothing is decoded
  std::optional<LabelOptions>
      label;  // absent = the field `cls` as an integer where the data set has it, else no labels
  BadSamples bad_samples = BadSamples::kFail;
  bool log_damage = true;  // the first damaged sample that is replaced or masked; false: the program reports them
  // Rows without a sample hold these. Without an entry: integer labels are -100, floating point labels NaN, images of
  // numbers 255, all others 0. Entries that name no array of the batch have no effect.
  std::vector<FieldPadding> padding;
  bool finite_padding = false;  // labels that are floats have 0 there
  // These are for a source of rows of tokens (Source::OfRows). Only bad_samples among the options above counts for it:
  // a damaged piece is replaced by padding.
  TokenType token_type = TokenType::kInt64;
  int64_t pad_token = 0;

  // These are about the order.
  uint64_t batch = 128;  // samples, or rows, of a batch of this rank; buckets say their own
  Shuffle shuffle = Shuffle::kWindow;
  // These are for the windowed shuffle; absent = the defaults of OrderPolicy::ForSamples for each part of the source.
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
  // These are for a staged loader (staged_loader.h).
  bool keyed_by_place = false;  // augmentation follows from the place of a sample, in place of its number
  bool numbered = true;         // false: all samples have the number -1
  uint64_t begun = 0;           // as Batching's

  // These are the resources. None of them changes the contents of batches.
  uint64_t memory_bytes =
      uint64_t{512} << 20;         // of fetched bytes and batches together, also those that the program holds
  MemoryShares* shares = nullptr;  // from which it has a share, in place of memory_bytes; outlives the loader's making
  DigestOf digest = DigestOf::kNone;
  std::shared_ptr<RangeCache> cache;  // that reads go through; null: there is none
  bool pin = false;                   // bytes that are read stay in the cache, whatever else is read
  /// The number of ranks of this machine, which share a cache: this one and its neighbours, in groups that are counted
  /// from rank 0. 0: all do. 1: it is in memory.
  uint64_t local_ranks = 0;
};

/// The pipeline: fetches samples in the order of the plan, ahead of the consumer and within one memory budget. It
/// decodes them on the CPU pool straight into batches, and delivers those in order. The bytes of batch n depend on
/// (data, options, n) only. For example, `Create(runtime, dataset, {.batch = 128})` makes a loader whose Next() returns
/// batches of 128 images.
///
/// The destructor cancels requests in flight and waits for them (not for batches that the program still holds).
/// Runtime, the Datasets of the source and their Stores must outlive the Loader.
class Loader : public BatchSource {
 public:
  /// This is the minimum of memory. With less, no loader works, whatever its batches and samples.
  static constexpr uint64_t kLeastMemoryBytes = uint64_t{2} << 20;

  /// Reserves options.memory_bytes of runtime.memory(), or less if the data set needs less. Errors: InvalidArgument
  /// (options), FailedPrecondition (the position is one of other data, seed or policy), ResourceExhausted (a budget
  /// that cannot hold two batches; the message names one that can).
  static absl::StatusOr<std::unique_ptr<Loader>> Create(Runtime& runtime, const Source& source, LoaderOptions options);
  /// Returns the error that Create would return about these options, except for memory.
  static absl::Status Check(const Source& source, LoaderOptions options);

  /// Returns the order in use, with defaults filled in; for a mix, that of its first part.
  virtual const OrderPolicy& policy() const = 0;
};

}  // namespace millrace
