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
  kMask,     // its row stays and is padding, and is listed likewise; of rows of tokens the same as kReplace
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
  // What is delivered: these entries, of which each batch of samples has one array or column of values, or, if there
  // are none, "image" and "label" as the options below say.
  std::vector<BatchField> fields;
  ImageSpec image;
  std::string image_field;    // "" = the one field of each sample that is an image (IsImageField)
  bool allow_arrays = false;  // data sets of arrays without images are delivered as well: nothing is decoded
  std::optional<LabelOptions>
      label;  // absent = the field `cls` as an integer where the data set has it, else no labels
  BadSamples bad_samples = BadSamples::kFail;
  bool log_damage = true;  // the first damaged sample that is replaced or masked; false: the program reports them
  // Rows without a sample hold these. Without an entry: integer labels are -100, floating point labels NaN, images of
  // numbers 255, all others 0. Entries that name no array of the batch mean nothing.
  std::vector<FieldPadding> padding;
  bool finite_padding = false;  // labels that are floats have 0 there
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
  // For a staged loader (staged_loader.h).
  bool keyed_by_place = false;  // augmentation follows from the place of a sample, in place of its number
  bool numbered = true;         // false: all samples have the number -1

  // With what means. None of these changes what is delivered.
  uint64_t memory_bytes =
      uint64_t{512} << 20;         // of fetched bytes and batches together, also those that the program holds
  MemoryShares* shares = nullptr;  // from which it has a share, in place of memory_bytes; outlives the loader's making
  DigestOf digest = DigestOf::kNone;
  std::shared_ptr<RangeCache> cache;  // that reads go through; null: there is none
  bool pin = false;                   // what is read stays in the cache, whatever else is read
  /// So many ranks share a cache, those of this machine: this one and its neighbours, in groups that are counted from
  /// rank 0. 0: all do. 1: it is in memory.
  uint64_t local_ranks = 0;
};

/// The pipeline: fetches samples in the order of the plan, ahead of the consumer and within one memory budget, decodes
/// them on the CPU pool straight into batches, and delivers those in order. The bytes of batch n depend on (data,
/// options, n) only.
///
/// The destructor cancels what is in flight and waits for it (not for batches that the program still holds). Runtime,
/// the Datasets of the source and their Stores must outlive the Loader.
class Loader : public BatchSource {
 public:
  /// With less memory no loader works, whatever its batches and samples.
  static constexpr uint64_t kLeastMemoryBytes = uint64_t{2} << 20;

  /// Reserves options.memory_bytes of runtime.memory(), or less if the data set needs less. Errors: InvalidArgument
  /// (options; position of other data, seed or policy: FailedPrecondition), ResourceExhausted (a budget that cannot
  /// hold two batches: names the one that would do).
  static absl::StatusOr<std::unique_ptr<Loader>> Create(Runtime& runtime, const Source& source, LoaderOptions options);
  /// What Create would refuse about these options, memory apart.
  static absl::Status Check(const Source& source, LoaderOptions options);

  /// The order in use, with defaults filled in; of a mix, that of its first part.
  virtual const OrderPolicy& policy() const = 0;
};

}  // namespace millrace
